// Reads a small file with one JSON object. Include this header only in source files, because
// nlohmann's header is large.
//
// Thread-safe. Errors: InputError and IoError; FormatError with the offset of the first byte that
// is not JSON or is a number beyond fp64, if the JSON is not an object, or if the file is larger
// than 256 MiB.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ebb {

nlohmann::json read_json_file(const std::string& path);
/// The same, with names in the order of the file, so that the JSON can be written again.
nlohmann::ordered_json read_ordered_json_file(const std::string& path);
/// The same for a text that was read already; `path` names it in messages.
nlohmann::ordered_json read_ordered_json(const std::string& path, const std::string& text);

}  // namespace ebb

// Reads a small JSON file. Include this header only in source files, because nlohmann's header is
// large.
//
// Thread-safe. Errors: IoError; FormatError with the offset of the first byte that is not JSON, or
// if the file is larger than 256 MiB.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ebb {

nlohmann::json read_json_file(const std::string& path);
/// The same, with names in the order of the file, so that the JSON can be written again.
nlohmann::ordered_json read_ordered_json_file(const std::string& path);

}  // namespace ebb

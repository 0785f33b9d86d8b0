// Reads a small file of JSON whole. Only for source files: nlohmann's is a large header.
//
// Errors: IoError; FormatError with the offset of the first byte that is no JSON, or where the file
// is larger than 256 MiB.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ebb {

nlohmann::json read_json_file(const std::string& path);
/// The same, names in the order of the file: for what is written again.
nlohmann::ordered_json read_ordered_json_file(const std::string& path);

}  // namespace ebb

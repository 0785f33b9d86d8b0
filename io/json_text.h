// Converts JSON to and from text. Include this header only in source files, because nlohmann's
// header is large. Pure functions.
//
// json_text.cpp compiles the parser and the writer once. Otherwise every file that uses them would
// compile for seconds longer, and three times as long with sanitizers.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace ebb {

/// Throws nlohmann::json::parse_error.
nlohmann::json parse_json(std::string_view text);
/// The same, with names in the order of the text.
nlohmann::ordered_json parse_ordered_json(std::string_view text);
/// Returns a discarded value (is_discarded()) if the text is not JSON.
nlohmann::json parse_json_or_discard(std::string_view text);

/// The value as a whole number from 0 to 2^64 - 1; nullopt if it is any other value. nlohmann's
/// get() would convert 1.5, -1 and true.
template <class Json>
std::optional<uint64_t> whole_number(const Json& json) {
  if (!json.is_number_unsigned()) return std::nullopt;
  return json.template get<uint64_t>();
}

/// Writes JSON on one line, or with `indent` spaces per level. Throws nlohmann::json::type_error if
/// a string is not UTF-8.
std::string json_text(const nlohmann::json& json, int indent = -1);
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace ebb

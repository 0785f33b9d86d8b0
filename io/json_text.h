// JSON to and from text. Only for source files: nlohmann's is a large header.
//
// Its parser and its writer are compiled here once: where each file has its own, every one takes
// seconds more, and three times that with sanitizers.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ebb {

/// Throws nlohmann::json::parse_error.
nlohmann::json parse_json(std::string_view text);
/// The same, names in the order of the text.
nlohmann::ordered_json parse_ordered_json(std::string_view text);
/// Discarded where the text is not JSON: that is no object, no array and no value.
nlohmann::json parse_json_or_discard(std::string_view text);

/// On one line, or with so many spaces a level. Throws nlohmann::json::type_error where a text in
/// it is not UTF-8.
std::string json_text(const nlohmann::json& json, int indent = -1);
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace ebb

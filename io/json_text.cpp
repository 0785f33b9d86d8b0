#include "io/json_text.h"

namespace ebb {

nlohmann::json parse_json(std::string_view text) { return nlohmann::json::parse(text); }

nlohmann::ordered_json parse_ordered_json(std::string_view text) {
  return nlohmann::ordered_json::parse(text);
}

nlohmann::json parse_json_or_discard(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, false);
}

std::string json_text(const nlohmann::json& json, int indent) { return json.dump(indent); }

std::string json_text(const nlohmann::ordered_json& json, int indent) { return json.dump(indent); }

}  // namespace ebb

#include "io/json_fields.h"

#include <fmt/format.h>

#include "device/errors.h"
#include "io/json_text.h"
#include "io/plain_text.h"

namespace ebb {

const nlohmann::ordered_json* JsonFields::find(std::string_view name) const {
  const auto found = json_.find(name);
  return found == json_.end() ? nullptr : &*found;
}

uint64_t JsonFields::whole(std::string_view name) const {
  const nlohmann::ordered_json* const value = find(name);
  const auto number = value == nullptr ? std::nullopt : whole_number(*value);
  if (!number) refuse(name, "a whole number from 0");
  return *number;
}

bool JsonFields::truth(std::string_view name) const {
  const nlohmann::ordered_json* const value = find(name);
  if (value == nullptr || !value->is_boolean()) refuse(name, "true or false");
  return value->get<bool>();
}

std::string JsonFields::text(std::string_view name) const {
  const nlohmann::ordered_json* const value = find(name);
  if (value == nullptr || !value->is_string()) refuse(name, "a text");
  return value->get<std::string>();
}

void JsonFields::refuse(std::string_view name, std::string_view allowed) const {
  const nlohmann::ordered_json* const value = find(name);
  refuse_text(name, value == nullptr ? "missing" : json_text(*value), allowed);
}

void JsonFields::refuse(std::string_view name, const nlohmann::ordered_json& value,
                        std::string_view allowed) const {
  refuse_text(name, json_text(value), allowed);
}

void JsonFields::refuse_text(std::string_view name, std::string_view value,
                             std::string_view allowed) const {
  throw FormatError(
      path_, 0,
      fmt::format("{} is {}; allowed is {}; {}", name, shortened(value), allowed, advice_));
}

}  // namespace ebb

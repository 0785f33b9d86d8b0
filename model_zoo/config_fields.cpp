#include "model_zoo/config_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/errors.h"
#include "io/json_text.h"
#include "io/plain_text.h"

namespace ebb {
namespace {

constexpr int64_t kLargestSize = std::numeric_limits<int32_t>::max();
constexpr size_t kShownBytes = 200;

std::string list_of(std::initializer_list<std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) {
    text += fmt::format("{}'{}'", text.empty() ? "" : ", ", name);
  }
  return text;
}

}  // namespace

ConfigFields::ConfigFields(std::string path, const nlohmann::json& json)
    : path_(std::move(path)), json_(&json) {}

const nlohmann::json* ConfigFields::find(std::string_view name) const {
  const auto at = json_->find(name);
  return at == json_->end() || at->is_null() ? nullptr : &*at;
}

bool ConfigFields::is_null(std::string_view name) const {
  const auto at = json_->find(name);
  return at != json_->end() && at->is_null();
}

int64_t ConfigFields::size(std::string_view name) const {
  const auto value = find_size(name);
  if (!value) throw_missing(name);
  return *value;
}

std::optional<int64_t> ConfigFields::find_size(std::string_view name, uint64_t least) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  // A negative number, converted to unsigned, is too large.
  if (!value->is_number_integer() || value->get<uint64_t>() < least ||
      value->get<uint64_t>() > static_cast<uint64_t>(kLargestSize)) {
    refuse(name, fmt::format("a whole number from {} to {}", least, kLargestSize));
  }
  return value->get<int64_t>();
}

double ConfigFields::number(std::string_view name, NumberRange range) const {
  const auto value = find_number(name, range);
  if (!value) throw_missing(name);
  return *value;
}

double ConfigFields::number(std::string_view name, double otherwise, NumberRange range) const {
  if (is_null(name)) refuse(name, "a number");
  return find_number(name, range).value_or(otherwise);
}

std::optional<double> ConfigFields::find_number(std::string_view name, NumberRange range) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse(name, "a number");
  const auto number = value->get<double>();
  if (number >= range.least && number <= range.most) return number;
  refuse(name, fmt::format("a number from {} to {}", range.least, range.most));
}

bool ConfigFields::flag(std::string_view name, bool otherwise) const {
  if (is_null(name)) refuse(name, "true or false");
  const nlohmann::json* value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(name, "true or false");
  return value->get<bool>();
}

std::optional<std::string> ConfigFields::find_text(std::string_view name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(name, "a text");
  return value->get<std::string>();
}

std::optional<ConfigFields> ConfigFields::find_object(std::string_view name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) refuse(name, "an object");
  ConfigFields fields(path_, *value);
  fields.prefix_ = fmt::format("{}{}.", prefix_, name);
  return fields;
}

void ConfigFields::require_flag(std::string_view name, bool allowed) const {
  if (flag(name, allowed) == allowed) return;
  refuse(name, allowed ? "only true" : "only false");
}

void ConfigFields::require_text(std::string_view name,
                                std::initializer_list<std::string_view> allowed,
                                std::string_view otherwise) const {
  if (is_null(name)) refuse(name, list_of(allowed));
  const auto value = find_text(name);
  if (!value && otherwise.empty()) throw_missing(name);
  const std::string_view text = value ? std::string_view(*value) : otherwise;
  if (std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
    refuse(name, list_of(allowed));
  }
}

void ConfigFields::require_known(std::initializer_list<std::string_view> names) const {
  for (const auto& [name, value] : json_->items()) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    throw ConfigError(
        fmt::format("'{}': {}{} is not known; known are {}", path_, prefix_, name, list_of(names)));
  }
}

void ConfigFields::refuse(std::string_view name, std::string_view allowed) const {
  const nlohmann::json* value = find(name);
  const std::string text = value != nullptr ? json_text(*value)
                           : is_null(name)  ? "null"
                                            : "missing";
  throw ConfigError(fmt::format("'{}': {}{} is {}, allowed is {}", path_, prefix_, name,
                                shortened(text, kShownBytes), allowed));
}

void ConfigFields::throw_missing(std::string_view name) const {
  throw ConfigError(fmt::format("'{}' has no {}{}", path_, prefix_, name));
}

}  // namespace ebb

// Reads the fields of a config.json and checks their types. Include this header only in source
// files.
//
// A field that is null counts as absent, as in Python, where null is allowed. transformers allows
// no null for flags, texts and numbers that have a default. Errors: ConfigError that names the
// file, the field, its value and the allowed values.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace ebb {

struct NumberRange {
  double least = -std::numeric_limits<double>::max(), most = std::numeric_limits<double>::max();
};

/// The small number in the denominator of a norm. The kernels use it in fp32 and treat denormal
/// numbers as 0.
inline constexpr NumberRange kNormEpsilon{1e-30, 1};

class ConfigFields {
 public:
  /// `json` must outlive this object. REQUIRES: it is an object.
  ConfigFields(std::string path, const nlohmann::json& json);

  const std::string& path() const { return path_; }
  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// Whether the field is present and null. Needed for a field in which null and absent differ.
  bool is_null(std::string_view name) const;
  /// Null if the field is absent.
  const nlohmann::json* find(std::string_view name) const;

  /// A size: a whole number from 1 to 2^31 - 1. Tokens and positions are int32.
  int64_t size(std::string_view name) const;
  std::optional<int64_t> find_size(std::string_view name, uint64_t least = 1) const;
  double number(std::string_view name, NumberRange range = {}) const;
  /// The number `otherwise` if the field is absent. Null is refused.
  double number(std::string_view name, double otherwise, NumberRange range = {}) const;
  std::optional<double> find_number(std::string_view name, NumberRange range = {}) const;
  /// `otherwise` if the field is absent. Null is refused.
  bool flag(std::string_view name, bool otherwise) const;
  std::optional<std::string> find_text(std::string_view name) const;
  /// A nested object; messages name its fields "name.field". nullopt if the object is absent.
  std::optional<ConfigFields> find_object(std::string_view name) const;

  /// Throws ConfigError if the value is not `allowed`, or null. An absent field has the value
  /// `allowed`.
  void require_flag(std::string_view name, bool allowed) const;
  /// Throws ConfigError if the text is not in `allowed`, or null. REQUIRES: the field is present,
  /// or `otherwise` is not empty.
  void require_text(std::string_view name, std::initializer_list<std::string_view> allowed,
                    std::string_view otherwise = {}) const;
  /// Throws ConfigError if there is a field that is not in the list.
  void require_known(std::initializer_list<std::string_view> names) const;
  /// Throws ConfigError: "'config.json': n_head is 0, allowed is a whole number from 1".
  [[noreturn]] void refuse(std::string_view name, std::string_view allowed) const;

 private:
  [[noreturn]] void throw_missing(std::string_view name) const;

  std::string path_;
  std::string prefix_;  // of names in messages
  const nlohmann::json* json_;
};

}  // namespace ebb

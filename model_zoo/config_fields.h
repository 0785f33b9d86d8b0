// The fields of a config.json, read with their types checked. Only for source files.
//
// null counts as absent, as in Python. Errors: ConfigError naming file, field, value and what is
// allowed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace ebb {

class ConfigFields {
 public:
  /// `json` must outlive this. ConfigError where it is no object.
  ConfigFields(std::string path, const nlohmann::json& json);

  const std::string& path() const { return path_; }
  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// Is it there as null? For the field that then means something else than when it is absent.
  bool is_null(std::string_view name) const;
  /// Null where it is absent.
  const nlohmann::json* find(std::string_view name) const;

  /// A size: a whole number from 1 to 2^40.
  int64_t size(std::string_view name) const;
  std::optional<int64_t> find_size(std::string_view name, uint64_t least = 1) const;
  double number(std::string_view name) const;
  std::optional<double> find_number(std::string_view name) const;
  bool flag(std::string_view name, bool otherwise) const;
  std::optional<std::string> find_text(std::string_view name) const;
  /// An object within, its fields named "name.field"; nullopt where it is absent.
  std::optional<ConfigFields> find_object(std::string_view name) const;

  /// Refuses any value but this; absent counts as `otherwise`.
  void require_flag(std::string_view name, bool allowed, bool otherwise) const;
  /// Refuses any text but these. REQUIRES: it is there or `otherwise` is not empty.
  void require_text(std::string_view name, std::initializer_list<std::string_view> allowed,
                    std::string_view otherwise = {}) const;
  /// Refuses fields that are not in the list.
  void require_known(std::initializer_list<std::string_view> names) const;
  /// "'config.json': n_head is 0, allowed is a whole number from 1".
  [[noreturn]] void refuse(std::string_view name, std::string_view allowed) const;

 private:
  [[noreturn]] void throw_missing(std::string_view name) const;

  std::string path_;
  std::string prefix_;  // of names in messages
  const nlohmann::json* json_;
};

}  // namespace ebb

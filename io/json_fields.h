// Reads the fields of a JSON object that Ebb or one of its tools wrote. Include this header only in
// source files, because nlohmann's header is large.
//
// Thread-safe. Errors: FormatError that names the file, the field, its value and what is allowed.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ebb {

class JsonFields {
 public:
  /// `advice` says in messages what to do. All three must outlive this object. REQUIRES: `json` is
  /// an object.
  JsonFields(const std::string& path, const nlohmann::ordered_json& json, std::string_view advice)
      : path_(path), json_(json), advice_(advice) {}

  /// Null if there is no such field.
  const nlohmann::ordered_json* find(std::string_view name) const;
  /// A whole number from 0 to 2^64 - 1.
  uint64_t whole(std::string_view name) const;
  bool truth(std::string_view name) const;
  std::string text(std::string_view name) const;

  /// Refuses the value of a field, or that the field is missing.
  [[noreturn]] void refuse(std::string_view name, std::string_view allowed) const;
  /// Refuses a value within a field; `name` is "field.part".
  [[noreturn]] void refuse(std::string_view name, const nlohmann::ordered_json& value,
                           std::string_view allowed) const;

 private:
  [[noreturn]] void refuse_text(std::string_view name, std::string_view value,
                                std::string_view allowed) const;

  const std::string& path_;
  const nlohmann::ordered_json& json_;
  std::string_view advice_;
};

}  // namespace ebb

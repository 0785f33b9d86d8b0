#include "io/token_record.h"

#include <filesystem>
#include <system_error>

#include "io/input_file.h"
#include "io/json_fields.h"
#include "io/json_file.h"
#include "io/json_text.h"

namespace ebb {
namespace {

constexpr std::string_view kFormat = "ebb tokens";
constexpr uint64_t kRecordVersion = 1;
constexpr std::string_view kExtension = ".json";
constexpr size_t kMostBytes = size_t{64} << 10;

constexpr std::string_view kAdvice =
    "make the token file again with tools/tokenize.py, or remove this record to use the file "
    "unchecked";

std::optional<uint64_t> sequence_length(const JsonFields& fields) {
  const nlohmann::ordered_json* const value = fields.find("sequence_length");
  if (value != nullptr && value->is_null()) return std::nullopt;
  const auto length = value == nullptr ? std::nullopt : whole_number(*value);
  if (length.value_or(0) == 0) fields.refuse("sequence_length", "a whole number from 1, or null");
  return length;
}

Targets targets(const JsonFields& fields) {
  const nlohmann::ordered_json* const value = fields.find("targets");
  if (value == nullptr || value->is_null()) return Targets::Unknown;
  if (*value == "next") return Targets::Next;
  if (*value == "masked") return Targets::Masked;
  fields.refuse("targets", "\"next\" or \"masked\"");
}

}  // namespace

TokenRecord parse_token_record(const std::string& path, const std::string& text) {
  const nlohmann::ordered_json json = read_ordered_json(path, text);
  const JsonFields fields(path, json, kAdvice);
  if (fields.text("format") != kFormat) fields.refuse("format", "\"ebb tokens\"");
  if (fields.whole("version") != kRecordVersion) fields.refuse("version", "1");
  return {.path = path,
          .num_tokens = fields.whole("num_tokens"),
          .vocabulary = fields.whole("vocabulary"),
          .tokenizer = fields.text("tokenizer"),
          .sequence_length = sequence_length(fields),
          .documents = fields.truth("documents"),
          .labels = fields.truth("labels"),
          .targets = targets(fields)};
}

std::string file_of_record(const std::string& path) {
  if (!path.ends_with(".bin.json")) return {};
  return path.substr(0, path.size() - kExtension.size());
}

std::vector<std::string> record_paths(const std::string& token_file) {
  std::error_code error;
  const std::string target = std::filesystem::canonical(token_file, error).string();
  std::vector<std::string> paths;
  for (const std::string& file : {token_file, target}) {
    if (file.ends_with(".bin")) paths.push_back(file + std::string(kExtension));
  }
  return paths;
}

std::string find_record(const std::string& token_file) {
  for (const std::string& path : record_paths(token_file)) {
    if (is_entry(path)) return path;  // a broken link too: reading it says what is wrong
  }
  return {};
}

std::optional<TokenRecord> read_token_record(const std::string& token_file) {
  const std::string path = find_record(token_file);
  if (path.empty()) return std::nullopt;
  return parse_token_record(path, read_input_file(path, "the record of a token file", kMostBytes));
}

}  // namespace ebb

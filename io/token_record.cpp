#include "io/token_record.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "device/errors.h"
#include "io/input_file.h"
#include "io/json_text.h"

namespace ebb {
namespace {

constexpr std::string_view kFormat = "ebb tokens";
constexpr uint64_t kVersion = 1;
constexpr std::string_view kExtension = ".json";
constexpr size_t kMostBytes = size_t{64} << 10;

class Fields {
 public:
  Fields(const std::string& path, const nlohmann::json& json) : path_(path), json_(json) {
    if (!json.is_object()) fail("this is no JSON object");
  }

  uint64_t whole(const char* name) const {
    const nlohmann::json& value = field(name);
    if (!value.is_number_unsigned()) fail(name, "a whole number from 0");
    return value.get<uint64_t>();
  }
  std::optional<uint64_t> whole_or_null(const char* name) const {
    if (field(name).is_null()) return std::nullopt;
    if (!field(name).is_number_unsigned() || field(name) == 0) {
      fail(name, "a whole number from 1, or null");
    }
    return field(name).get<uint64_t>();
  }
  bool truth(const char* name) const {
    if (!field(name).is_boolean()) fail(name, "true or false");
    return field(name).get<bool>();
  }
  std::string text(const char* name) const {
    if (!field(name).is_string()) fail(name, "a string");
    return field(name).get<std::string>();
  }
  Targets targets() const {
    const auto found = json_.find("targets");
    if (found == json_.end() || found->is_null()) return Targets::Unknown;
    if (*found == "next") return Targets::Next;
    if (*found == "masked") return Targets::Masked;
    fail("targets", "\"next\" or \"masked\"");
  }
  [[noreturn]] void fail(const char* name, std::string_view allowed) const {
    fail(fmt::format("its field \"{}\" must be {}", name, allowed));
  }

 private:
  const nlohmann::json& field(const char* name) const {
    const auto found = json_.find(name);
    if (found == json_.end()) fail(fmt::format("its field \"{}\" is missing", name));
    return *found;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw FormatError(path_, 0,
                      "this is no record of a token file: " + what +
                          "; make the token file again with tools/tokenize.py, or remove the "
                          "record to use the file unchecked");
  }

  const std::string& path_;
  const nlohmann::json& json_;
};

}  // namespace

TokenRecord parse_token_record(const std::string& path, std::string_view text) {
  const nlohmann::json json = parse_json_or_discard(text);
  const Fields fields(path, json);
  if (fields.text("format") != kFormat) fields.fail("format", "\"ebb tokens\"");
  if (fields.whole("version") != kVersion) fields.fail("version", "1");
  return {.path = path,
          .num_tokens = fields.whole("num_tokens"),
          .vocabulary = fields.whole("vocabulary"),
          .tokenizer = fields.text("tokenizer"),
          .sequence_length = fields.whole_or_null("sequence_length"),
          .documents = fields.truth("documents"),
          .labels = fields.truth("labels"),
          .targets = fields.targets()};
}

std::string record_path(const std::string& token_file) {
  return token_file + std::string(kExtension);
}

std::string file_of_record(const std::string& path) {
  if (!path.ends_with(".bin.json")) return {};
  return path.substr(0, path.size() - kExtension.size());
}

std::optional<TokenRecord> read_token_record(const std::string& token_file) {
  namespace fs = std::filesystem;
  std::error_code error;
  const std::string target = fs::canonical(token_file, error).string();
  for (const std::string& file : {token_file, target}) {
    const std::string path = record_path(file);
    // A broken link exists: reading it says what is wrong.
    if (!file.ends_with(".bin") || !fs::exists(fs::symlink_status(path, error))) continue;
    return parse_token_record(path,
                              read_input_file(path, "the record of a token file", kMostBytes));
  }
  return std::nullopt;
}

}  // namespace ebb

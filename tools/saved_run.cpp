#include "tools/saved_run.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "device/errors.h"
#include "io/input_file.h"
#include "io/json_file.h"
#include "io/json_text.h"
#include "io/new_file.h"
#include "io/state_file.h"
#include "tools/run_id.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kVersion = 1;
constexpr const char* kChecksum = "xxh64";
constexpr const char* kFiles = "files";
constexpr const char* kCopies[] = {"config.json", kConfigFile};
constexpr uint64_t kMostCopyBytes = uint64_t{256} << 20;

std::string text_of(const nlohmann::ordered_json& json) { return json_text(json, 2) + "\n"; }

std::string checksum_of(const nlohmann::ordered_json& json) {
  const std::string text = text_of(json);
  return fmt::format("{:016x}", XXH64(text.data(), text.size(), 0));
}

nlohmann::ordered_json to_json(const RunConfig& config) {
  auto json = nlohmann::ordered_json::object();
  for (const FlagValue& flag : config) json[flag.name] = flag.values;
  return json;
}

std::vector<std::string> names_resolved(const RunConfig& config) {
  std::vector<std::string> names;
  for (const FlagValue& flag : config) {
    if (flag.resolved) names.push_back(flag.name);
  }
  return names;
}

/// Removes the checksum and compares it with the other fields. Returns false if there is none,
/// which is allowed in files of old programs, which have no run_id either.
bool check_and_remove_checksum(const std::string& path, nlohmann::ordered_json& json) {
  const auto found = json.find(kChecksum);
  if (found == json.end()) {
    if (!json.contains("run_id")) return false;
    throw FormatError(path, 0, fmt::format("the checksum '{}' is missing", kChecksum));
  }
  const nlohmann::ordered_json written = *found;
  json.erase(found);
  if (written == checksum_of(json)) return true;
  throw FormatError(
      path, 0,
      fmt::format("the checksum '{}' is not that of the other fields: the file is damaged or was "
                  "changed; use another checkpoint, and change settings with flags",
                  kChecksum));
}

uint64_t hash_of_file(const fs::path& path) {
  const std::string text = read_input_file(path.string(), "checkpoint", kMostCopyBytes);
  return XXH64(text.data(), text.size(), 0);
}

/// The checksums of the small files that describe the run too.
nlohmann::ordered_json hashes_of_copies(const std::string& checkpoint) {
  auto json = nlohmann::ordered_json::object();
  for (const char* name : kCopies) {
    const fs::path path = fs::path(checkpoint) / name;
    if (fs::exists(path)) json[name] = fmt::format("{:016x}", hash_of_file(path));
  }
  return json;
}

/// Throws FormatError if one of those files was changed. Old checkpoints have no checksums of them.
void check_copies(const std::string& checkpoint, const nlohmann::ordered_json& json) {
  const auto hashes = json.find(kFiles);
  if (hashes == json.end() || *hashes == hashes_of_copies(checkpoint)) return;
  for (const char* name : kCopies) {
    const fs::path path = fs::path(checkpoint) / name;
    if (!hashes->contains(name) && !fs::exists(path)) continue;
    if (fs::exists(path) && hashes->value(name, "") == fmt::format("{:016x}", hash_of_file(path))) {
      continue;
    }
    throw FormatError(path.string(), 0,
                      fmt::format("it was changed after the checkpoint was written: a resumed run "
                                  "would not be the same run. Change settings with flags; {}",
                                  "restore this file, or use another checkpoint"));
  }
}

/// Reads the fields of training.json. Errors name the field and what is allowed.
class Fields {
 public:
  Fields(const std::string& path, const nlohmann::ordered_json& json) : path_(path), json_(json) {}

  uint64_t number(const char* name) const {
    if (const auto value = whole_number(field(name))) return *value;
    refuse(name, "a whole number from 0");
  }
  std::string text(const char* name) const {
    if (!field(name).is_string()) refuse(name, "a text");
    return field(name).get<std::string>();
  }
  std::string text_or_empty(const char* name) const {
    return json_.contains(name) ? text(name) : "";
  }
  std::vector<std::string> texts(const char* name) const { return texts(name, field(name)); }
  std::vector<std::string> texts_or_empty(const char* name) const {
    return json_.contains(name) ? texts(name) : std::vector<std::string>{};
  }
  /// Flags that --resume takes over. They may come from somebody else.
  RunConfig config() const {
    if (!field("config").is_object()) refuse("config", "an object of flags");
    RunConfig config;
    for (const auto& [name, values] : field("config").items()) {
      config.push_back({name, texts("config." + name, values), false});
      if (is_setting(name) && !values.empty()) continue;
      throw FormatError(path_, 0,
                        fmt::format("config.{} is {}; allowed are settings of a run, with a value",
                                    name, json_text(values)));
    }
    return config;
  }

  [[noreturn]] void refuse(std::string_view name, std::string_view allowed) const {
    const auto found = json_.find(name);
    refuse(name, found == json_.end() ? "missing" : json_text(*found), allowed);
  }

 private:
  static constexpr size_t kShownBytes = 100;

  [[noreturn]] void refuse(std::string_view name, std::string value,
                           std::string_view allowed) const {
    if (value.size() > kShownBytes) value = value.substr(0, kShownBytes) + "...";
    throw FormatError(path_, 0, fmt::format("{} is {}; allowed is {}", name, value, allowed));
  }
  const nlohmann::ordered_json& field(const char* name) const {
    const auto found = json_.find(name);
    if (found == json_.end()) refuse(name, "a value: every checkpoint has this field");
    return *found;
  }
  std::vector<std::string> texts(std::string_view name, const nlohmann::ordered_json& json) const {
    const auto is_text = [](const nlohmann::ordered_json& value) {
      return value.is_string() && value.get<std::string>().find('\0') == std::string::npos;
    };
    if (!json.is_array() || !std::ranges::all_of(json, is_text))
      refuse(name, json_text(json), "a list of texts");
    return json.get<std::vector<std::string>>();
  }

  const std::string& path_;
  const nlohmann::ordered_json& json_;
};

SavedRun from_json(const Fields& fields) {
  SavedRun run{.position = {.step = fields.number("step"),
                            .num_samples = fields.number("num_samples"),
                            .num_tokens = fields.number("num_tokens")},
               .data_tokens = fields.number("data_tokens"),
               .data_hash = fields.text_or_empty("data_hash"),
               .labels_hash = fields.text_or_empty("labels_hash"),
               .written_by = fields.text("written_by"),
               .config = fields.config(),
               .run_id = fields.text_or_empty("run_id"),
               .log_line = fields.text_or_empty("log_line")};
  // In checkpoints without this field, all flags count as given.
  const std::vector<std::string> resolved = fields.texts_or_empty("resolved");
  for (FlagValue& flag : run.config) {
    flag.resolved = std::ranges::find(resolved, flag.name) != resolved.end();
  }
  if (!run.run_id.empty() && !is_run_id(run.run_id)) {
    fields.refuse("run_id", "16 hexadecimal digits");
  }
  return run;
}

}  // namespace

void write_saved_run(const std::string& checkpoint, const SavedRun& run) {
  write_new_file((fs::path(checkpoint) / kConfigFile).string(), to_toml(run.config));
  nlohmann::ordered_json json = {{"version", kVersion},
                                 {"run_id", run.run_id},
                                 {"step", run.position.step},
                                 {"num_samples", run.position.num_samples},
                                 {"num_tokens", run.position.num_tokens},
                                 {"data_tokens", run.data_tokens},
                                 {"data_hash", run.data_hash},
                                 {"labels_hash", run.labels_hash},
                                 {"written_by", run.written_by},
                                 {"log_line", run.log_line},
                                 {"config", to_json(run.config)},
                                 {"resolved", names_resolved(run.config)},
                                 {kFiles, hashes_of_copies(checkpoint)}};
  json[kChecksum] = checksum_of(json);
  write_new_file((fs::path(checkpoint) / kTrainingFile).string(), text_of(json));
}

SavedRun read_saved_run(const std::string& checkpoint) {
  const std::string path = (fs::path(checkpoint) / kTrainingFile).string();
  nlohmann::ordered_json json = read_ordered_json_file(path);
  const bool is_protected = check_and_remove_checksum(path, json);
  const Fields fields(path, json);
  if (fields.number("version") != kVersion) {
    fields.refuse("version", fmt::format("version {}, which this program reads", kVersion));
  }
  SavedRun run = from_json(fields);
  run.is_protected = is_protected;
  check_copies(checkpoint, json);
  return run;
}

std::map<std::string, uint64_t> numbers_of(const SavedRun& run) {
  std::map<std::string, uint64_t> numbers = {{"step", run.position.step},
                                             {"num_samples", run.position.num_samples},
                                             {"num_tokens", run.position.num_tokens}};
  if (!run.run_id.empty()) numbers["run_id"] = std::stoull(run.run_id, nullptr, 16);
  return numbers;
}

void check_state(const std::string& checkpoint, const SavedRun& run) {
  const StateFileReader state((fs::path(checkpoint) / kStateFile).string());
  for (const auto& [name, value] : numbers_of(run)) {
    const auto found = state.header().numbers.find(name);  // old files do not contain it
    if (found == state.header().numbers.end() || found->second == value) continue;
    throw FormatError(state.path(), 0,
                      fmt::format("{} is {} here and {} in {}: the files are of two checkpoints",
                                  name, found->second, value, kTrainingFile));
  }
}

}  // namespace ebb

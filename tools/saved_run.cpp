#include "tools/saved_run.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "device/errors.h"
#include "io/input_file.h"
#include "io/json_fields.h"
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

std::string hash_of(const std::string& text) {
  return fmt::format("{:016x}", XXH64(text.data(), text.size(), 0));
}

std::string checksum_of(const nlohmann::ordered_json& json) { return hash_of(text_of(json)); }

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

/// The checksums of the small files that describe the run too.
nlohmann::ordered_json hashes_of_copies(const std::string& checkpoint) {
  auto json = nlohmann::ordered_json::object();
  for (const char* name : kCopies) {
    const std::string path = (fs::path(checkpoint) / name).string();
    if (is_entry(path)) json[name] = hash_of(read_input_file(path, "checkpoint", kMostCopyBytes));
  }
  return json;
}

/// Throws FormatError if one of those files was changed. Old checkpoints have no checksums of them.
void check_copies(const std::string& checkpoint, const JsonFields& fields) {
  const nlohmann::ordered_json* const written = fields.find(kFiles);
  if (written == nullptr) return;
  if (!written->is_object()) fields.refuse(kFiles, "an object of checksums");
  const nlohmann::ordered_json found = hashes_of_copies(checkpoint);
  for (const char* name : kCopies) {
    const auto a = written->find(name), b = found.find(name);
    const bool has_a = a != written->end(), has_b = b != found.end();
    if (has_a == has_b && (!has_a || *a == *b)) continue;
    throw FormatError((fs::path(checkpoint) / name).string(), 0,
                      "it was changed after the checkpoint was written: a resumed run would not "
                      "be the same run. Change settings with flags; restore this file, or use "
                      "another checkpoint");
  }
}

std::string text_or_empty(const JsonFields& fields, std::string_view name) {
  return fields.find(name) == nullptr ? "" : fields.text(name);
}

std::vector<std::string> texts(const JsonFields& fields, std::string_view name,
                               const nlohmann::ordered_json& json) {
  const auto is_text = [](const nlohmann::ordered_json& value) {
    return value.is_string() && value.get<std::string>().find('\0') == std::string::npos;
  };
  if (!json.is_array() || !std::ranges::all_of(json, is_text)) {
    fields.refuse(name, json, "a list of texts");
  }
  return json.get<std::vector<std::string>>();
}

/// The flags that --resume takes over. They may come from somebody else.
RunConfig config_of(const JsonFields& fields) {
  const nlohmann::ordered_json* const json = fields.find("config");
  if (json == nullptr || !json->is_object()) fields.refuse("config", "an object of flags");
  // In checkpoints without this field, all flags count as given.
  const nlohmann::ordered_json* const list = fields.find("resolved");
  const auto resolved =
      list == nullptr ? std::vector<std::string>{} : texts(fields, "resolved", *list);
  RunConfig config;
  for (const auto& [name, values] : json->items()) {
    const std::string field = "config." + name;
    config.push_back(
        {name, texts(fields, field, values), std::ranges::find(resolved, name) != resolved.end()});
    if (is_setting(name) && !values.empty()) continue;
    fields.refuse(field, values, "a setting of a run, with a value");
  }
  return config;
}

/// Checkpoints without an evaluation, and old ones, do not have these fields.
BestEvaluation best_of(const JsonFields& fields) {
  const nlohmann::ordered_json* const loss = fields.find("best_eval_loss");
  if (loss == nullptr) return {};
  if (!loss->is_number()) fields.refuse("best_eval_loss", *loss, "a number");
  return {.loss = loss->get<double>(),
          .step = fields.whole("best_eval_step"),
          .num_worse = fields.whole("evals_since_best")};
}

SavedRun from_json(const JsonFields& fields) {
  SavedRun run{.position = {.step = fields.whole("step"),
                            .num_samples = fields.whole("num_samples"),
                            .num_tokens = fields.whole("num_tokens")},
               .data_tokens = fields.whole("data_tokens"),
               .data_hash = text_or_empty(fields, "data_hash"),
               .labels_hash = text_or_empty(fields, "labels_hash"),
               .written_by = fields.text("written_by"),
               .config = config_of(fields),
               .run_id = text_or_empty(fields, "run_id"),
               .log_line = text_or_empty(fields, "log_line")};
  run.best = best_of(fields);
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
  if (std::isfinite(run.best.loss)) {
    json["best_eval_loss"] = run.best.loss;
    json["best_eval_step"] = run.best.step;
    json["evals_since_best"] = run.best.num_worse;
  }
  json[kChecksum] = checksum_of(json);
  write_new_file((fs::path(checkpoint) / kTrainingFile).string(), text_of(json));
}

SavedRun read_saved_run(const std::string& checkpoint) {
  const std::string path = (fs::path(checkpoint) / kTrainingFile).string();
  nlohmann::ordered_json json = read_ordered_json_file(path);
  const bool is_protected = check_and_remove_checksum(path, json);
  const JsonFields fields(path, json, "use another checkpoint");
  if (fields.whole("version") != kVersion) {
    fields.refuse("version", fmt::format("{}, which this program reads", kVersion));
  }
  SavedRun run = from_json(fields);
  run.is_protected = is_protected;
  check_copies(checkpoint, fields);
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

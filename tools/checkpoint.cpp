#include "tools/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "device/errors.h"
#include "io/json_file.h"
#include "io/json_text.h"
#include "io/new_file.h"
#include "io/state_file.h"
#include "tools/run_id.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kRemovedSuffix = ".removed";
constexpr uint64_t kVersion = 1;
constexpr const char* kChecksum = "xxh64";

/// Splits "step-12" and "step-12.anything" into the step and the text after it.
std::optional<std::pair<uint64_t, std::string_view>> parse_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  uint64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc()) return std::nullopt;
  return std::pair(step, std::string_view(rest, static_cast<size_t>(end - rest)));
}

bool is_complete(const fs::path& checkpoint) {
  std::error_code ignored;
  return fs::exists(checkpoint / kTrainingFile, ignored);
}

/// Renames the folder before it removes files, so that a partly removed checkpoint is never read.
void remove_checkpoint(const std::string& path) {
  const std::string removed = path + std::string(kRemovedSuffix);
  std::error_code error;
  fs::rename(path, removed, error);
  if (error) throw IoError("cannot remove the old checkpoint", path, error.value());
  fs::remove_all(removed, error);
  if (error) throw IoError("cannot remove the old checkpoint", removed, error.value());
}

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

SavedRun from_json(const std::string& path, const nlohmann::ordered_json& json) {
  const auto number = [&](const char* name) {
    if (const auto value = whole_number(json.at(name))) return *value;
    throw FormatError(
        path, 0,
        fmt::format("{} is {}; allowed is a whole number from 0", name, json_text(json.at(name))));
  };
  SavedRun run{.position = {.step = number("step"),
                            .num_samples = number("num_samples"),
                            .num_tokens = number("num_tokens")},
               .data_tokens = number("data_tokens"),
               .written_by = json.at("written_by"),
               .config = {},
               .run_id = json.value("run_id", ""),
               .log_line = json.value("log_line", "")};
  // In checkpoints without this field, all flags count as given.
  const auto resolved = json.value("resolved", std::vector<std::string>{});
  for (const auto& [name, values] : json.at("config").items()) {
    run.config.push_back({name, values.get<std::vector<std::string>>(),
                          std::ranges::find(resolved, name) != resolved.end()});
    if (!values.empty()) continue;
    throw FormatError(path, 0, fmt::format("config: '{}' has no value", name));
  }
  return run;
}

}  // namespace

std::string checkpoint_path(const std::string& folder, uint64_t step) {
  return (fs::path(folder) / fmt::format("{}{}", kPrefix, step)).string();
}

std::vector<uint64_t> saved_steps(const std::string& folder) {
  std::vector<uint64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const auto parsed = parse_name(name);
    if (parsed && parsed->second.empty() && is_complete(entry.path())) {
      steps.push_back(parsed->first);
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw IoError("cannot read folder of checkpoints", folder, error.value());
  }
  std::ranges::sort(steps);
  return steps;
}

void write_saved_run(const std::string& checkpoint, const SavedRun& run) {
  nlohmann::ordered_json json = {{"version", kVersion},
                                 {"run_id", run.run_id},
                                 {"step", run.position.step},
                                 {"num_samples", run.position.num_samples},
                                 {"num_tokens", run.position.num_tokens},
                                 {"data_tokens", run.data_tokens},
                                 {"written_by", run.written_by},
                                 {"log_line", run.log_line},
                                 {"config", to_json(run.config)},
                                 {"resolved", names_resolved(run.config)}};
  json[kChecksum] = checksum_of(json);
  write_new_file((fs::path(checkpoint) / kConfigFile).string(), to_toml(run.config));
  write_new_file((fs::path(checkpoint) / kTrainingFile).string(), text_of(json));
}

SavedRun read_saved_run(const std::string& checkpoint) {
  const std::string path = (fs::path(checkpoint) / kTrainingFile).string();
  nlohmann::ordered_json json = read_ordered_json_file(path);
  const bool is_protected = check_and_remove_checksum(path, json);
  try {
    if (json.at("version") != kVersion) {
      throw FormatError(path, 0,
                        fmt::format("version {} of the format; this program reads version {}",
                                    json_text(json.at("version")), kVersion));
    }
    SavedRun run = from_json(path, json);
    run.is_protected = is_protected;
    if (run.run_id.empty() || is_run_id(run.run_id)) return run;
    throw FormatError(path, 0,
                      fmt::format("run_id is '{}'; allowed are 16 hexadecimal digits", run.run_id));
  } catch (const nlohmann::json::exception& error) {
    throw FormatError(path, 0, error.what());
  }
}

std::map<std::string, uint64_t> numbers_of(const RunPosition& position) {
  return {{"step", position.step},
          {"num_samples", position.num_samples},
          {"num_tokens", position.num_tokens}};
}

void check_state(const std::string& checkpoint, const RunPosition& position) {
  const StateFileReader state((fs::path(checkpoint) / kStateFile).string());
  for (const auto& [name, value] : numbers_of(position)) {
    const auto found = state.header().numbers.find(name);  // old files do not contain it
    if (found == state.header().numbers.end() || found->second == value) continue;
    throw FormatError(state.path(), 0,
                      fmt::format("{} is {} here and {} in {}: the files are of two checkpoints",
                                  name, found->second, value, kTrainingFile));
  }
}

std::optional<std::string> find_checkpoint(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw InputError("cannot resume from", folder, error ? error.value() : ENOTDIR);
  }
  if (is_complete(folder)) return folder;
  const std::vector<uint64_t> steps = saved_steps(folder);
  if (steps.empty()) return std::nullopt;
  return checkpoint_path(folder, steps.back());
}

void remove_old_checkpoints(const std::string& folder, uint64_t step, uint64_t keep,
                            const Notice& notice) {
  if (keep == 0) return;
  std::vector<uint64_t> steps = saved_steps(folder);
  std::erase_if(steps, [step](uint64_t other) { return other > step; });
  if (steps.size() <= keep) return;
  for (size_t i = 0; i < steps.size() - keep; ++i) {
    try {
      remove_checkpoint(checkpoint_path(folder, steps[i]));
    } catch (const IoError& error) {
      notice(error.what());
    }
  }
}

SaveFolder::SaveFolder(std::string path, const std::string& resumed, uint64_t step)
    : path_(std::move(path)) {
  create_folders(path_);
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0) throw IoError("cannot open folder of checkpoints", path_, errno);
  try {
    if (::access(path_.c_str(), W_OK | X_OK) != 0) {
      throw IoError("cannot write to folder of checkpoints", path_, errno);
    }
    lock();
    remove_rests();
    check_newest(resumed);
    check_names(step);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

SaveFolder::~SaveFolder() { ::close(descriptor_); }

/// The lock ends with the process. On a file system without locks, the folder is not locked.
void SaveFolder::lock() const {
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  throw ConfigError(fmt::format("--save '{}': another run saves there now", path_));
}

/// A renamed old checkpoint that cannot be removed may stay, because nothing reads it.
void SaveFolder::remove_rests() const {
  std::vector<fs::path> unfinished, removed;
  std::error_code error, ignored;
  for (const auto& entry : fs::directory_iterator(path_, error)) {
    const std::string name = entry.path().filename().string();
    const auto parsed = parse_name(name);
    if (parsed && parsed->second == kUnfinishedSuffix) unfinished.push_back(entry.path());
    if (parsed && parsed->second == kRemovedSuffix) removed.push_back(entry.path());
  }
  for (const fs::path& rest : removed) fs::remove_all(rest, ignored);
  for (const fs::path& rest : unfinished) {
    if (!error) fs::remove_all(rest, error);
  }
  if (error) throw IoError("cannot clear folder of checkpoints", path_, error.value());
}

/// Otherwise a later --resume would read a checkpoint of another run.
void SaveFolder::check_newest(const std::string& resumed) const {
  const std::vector<uint64_t> steps = saved_steps(path_);
  if (steps.empty()) return;
  const std::string newest = checkpoint_path(path_, steps.back());
  std::error_code ignored;
  if (!resumed.empty() && fs::equivalent(newest, resumed, ignored)) return;
  throw ConfigError(fmt::format(
      "--save '{}': its newest checkpoint is step-{}, which this run does not continue; "
      "continue it with --resume, or save to another folder",
      path_, steps.back()));
}

/// Otherwise the run would train up to that step and could not save it.
void SaveFolder::check_names(uint64_t step) const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error)) {
    const std::string name = entry.path().filename().string();
    const auto parsed = parse_name(name);
    if (!parsed || !parsed->second.empty() || parsed->first <= step) continue;
    throw ConfigError(fmt::format(
        "--save '{}': '{}' is there and is no complete checkpoint (it has no {}), and this run "
        "will save under that name: move it away, or save to another folder",
        path_, name, kTrainingFile));
  }
  if (error) throw IoError("cannot read folder of checkpoints", path_, error.value());
}

uint64_t SaveFolder::free_bytes() const {
  struct statvfs status = {};
  if (::fstatvfs(descriptor_, &status) != 0)
    throw IoError("cannot read free space of", path_, errno);
  if (status.f_blocks == 0) return UINT64_MAX;  // a file system that does not report its size
  return uint64_t{status.f_bavail} * status.f_frsize;
}

void SaveFolder::check_room(uint64_t bytes) const {
  const uint64_t left = free_bytes();
  if (bytes <= left) return;
  throw IoError(
      fmt::format("a checkpoint needs {}, but {} are free (old ones are removed after the "
                  "new one is complete) in",
                  format_bytes(bytes), format_bytes(left)),
      path_, ENOSPC);
}

}  // namespace ebb

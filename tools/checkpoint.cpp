#include "tools/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "device/errors.h"
#include "io/input_file.h"
#include "io/new_file.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRemovedSuffix = ".removed";

/// Whether a folder with a name of Ebb is empty or has files of a checkpoint.
bool is_ours(const fs::path& folder) {
  std::error_code error;
  if (fs::is_symlink(folder, error) || !fs::is_directory(folder, error)) return false;
  if (fs::is_empty(folder, error)) return true;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    for (const std::string_view beginning : {kStateFile, kTrainingFile, "model", "config.json"}) {
      if (name.starts_with(beginning)) return true;
    }
  }
  return false;
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

}  // namespace

void remove_old_checkpoints(const std::string& folder, uint64_t step, uint64_t keep,
                            std::optional<uint64_t> best, const Notice& notice) {
  if (keep == 0) return;
  const auto has_state = [&folder](uint64_t of) {
    std::error_code error;
    return fs::exists(fs::path(checkpoint_path(folder, of)) / kStateFile, error);
  };
  const bool is_resumable = has_state(step);
  std::vector<uint64_t> steps = saved_steps(folder);
  std::erase_if(steps, [&](uint64_t other) {
    return other > step || other == best || (!is_resumable && has_state(other));
  });
  if (steps.size() <= keep) return;
  for (size_t i = 0; i < steps.size() - keep; ++i) {
    try {
      remove_checkpoint(checkpoint_path(folder, steps[i]));
    } catch (const IoError& error) {
      notice(error.what());
    }
  }
}

void link_best(const std::string& folder, uint64_t step, const Notice& notice) {
  const fs::path link = fs::path(folder) / "best";
  std::error_code error;
  if (is_entry(link.string()) && !fs::is_symlink(link, error)) {
    notice(fmt::format("'{}' is no link of --save-best, so it is not changed; the best is {}",
                       link.string(), checkpoint_name(step)));
    return;
  }
  const fs::path unfinished = link.string() + std::string(kUnfinishedSuffix);
  fs::remove(unfinished, error);
  fs::create_directory_symlink(checkpoint_name(step), unfinished, error);
  if (!error) fs::rename(unfinished, link, error);
  if (error) notice(fmt::format("cannot make the link '{}': {}", link.string(), error.message()));
}

SaveFolder::SaveFolder(std::string path, const std::string& resumed, uint64_t step)
    : path_(std::move(path)) {
  std::error_code error;
  if (is_entry(path_) && !fs::is_directory(path_, error)) {
    throw ConfigError(
        fmt::format("--save '{}': it is no folder: give the name of a folder", path_));
  }
  is_new_ = !is_entry(path_);
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

SaveFolder::~SaveFolder() {
  if (is_new_) ::rmdir(path_.c_str());
  ::close(descriptor_);
}

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
    const auto parsed = parse_checkpoint_name(name);
    const bool is_unfinished = parsed && parsed->second == kUnfinishedSuffix;
    if (!is_unfinished && !(parsed && parsed->second == kRemovedSuffix)) continue;
    if (is_ours(entry.path())) {
      (is_unfinished ? unfinished : removed).push_back(entry.path());
      continue;
    }
    if (!is_unfinished) continue;
    throw ConfigError(fmt::format(
        "--save '{}': '{}' has the name of an unfinished checkpoint, but is none: move it away",
        path_, name));
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
      "--save '{}': its newest checkpoint is {}, which this run does not continue: "
      "continue it with `ebb train --resume '{}'` (and a larger --steps, if it has ended), "
      "or save to another folder",
      path_, checkpoint_name(steps.back()), path_));
}

/// Otherwise the run would train up to that step and could not save it.
void SaveFolder::check_names(uint64_t step) const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error)) {
    const std::string name = entry.path().filename().string();
    const auto parsed = parse_checkpoint_name(name);
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

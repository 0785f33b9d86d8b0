#include "io/data_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "device/errors.h"
#include "io/token_record.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

/// The entries of a folder, sorted, so that the same folder always gives the same list.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  try {
    for (const auto& entry : fs::directory_iterator(folder)) entries.push_back(entry.path());
  } catch (const fs::filesystem_error& error) {
    throw InputError("cannot list data folder", folder.string(), error.code().value());
  }
  std::ranges::sort(entries);
  return entries;
}

class Walk {
 public:
  explicit Walk(const fs::path& folder) {
    // Links are followed last, so that a file in the folder itself has the path without a link.
    for (links_.push_back(folder); !links_.empty(); links_.pop_front()) list(links_.front());
    std::ranges::sort(found_.files);
    std::ranges::sort(found_.left_out, {}, &NotedFile::path);
  }

  FolderFiles take() { return std::move(found_); }

 private:
  void list(const fs::path& folder) {
    struct stat status;
    if (::stat(folder.c_str(), &status) != 0) {
      throw InputError("cannot list data folder", folder.string(), errno);
    }
    if (!folders_.emplace(status.st_dev, status.st_ino).second) {
      return leave_out(FileNote::RepeatedFolder, folder);
    }
    for (const fs::path& entry : entries_of(folder)) visit(entry);
  }

  void visit(const fs::path& path) {
    if (path.filename().native().starts_with('.')) return leave_out(FileNote::Hidden, path);
    std::error_code error;
    struct stat status;
    if (::stat(path.c_str(), &status) != 0) {
      const int reason = errno;
      const bool is_broken = (reason == ENOENT || reason == ELOOP) && fs::is_symlink(path, error);
      if (!is_broken) throw InputError("cannot read data", path.string(), reason);
      return leave_out(FileNote::BrokenLink, path);
    }
    if (S_ISDIR(status.st_mode)) {
      return fs::is_symlink(path, error) ? links_.push_back(path) : list(path);
    }
    if (!S_ISREG(status.st_mode)) return leave_out(FileNote::SpecialFile, path);
    const std::string described = file_of_record(path.string());
    if (described.empty()) return found_.files.push_back(path.string());
    if (!fs::exists(described, error)) leave_out(FileNote::LoneRecord, path);
  }

  void leave_out(FileNote note, const fs::path& path) {
    found_.left_out.push_back({.note = note, .path = path.string()});
  }

  FolderFiles found_;
  std::deque<fs::path> links_;
  std::set<std::pair<dev_t, ino_t>> folders_;
};

}  // namespace

FolderFiles files_under(const std::string& folder) { return Walk(folder).take(); }

}  // namespace ebb

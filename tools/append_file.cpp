#include "tools/append_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "device/errors.h"
#include "io/new_file.h"
#include "system/unique_fd.h"
#include "tools/set_aside.h"

namespace ebb {
AppendFile::AppendFile(std::string path, std::string what)
    : path_(std::move(path)), what_(std::move(what)) {
  open();
}

AppendFile::~AppendFile() {
  if (descriptor_ < 0) return;
  struct stat status = {};
  const bool is_empty = ::fstat(descriptor_, &status) == 0 && status.st_size == 0;
  if (is_new_ && is_empty && has_path()) ::unlink(destination_of(path_).c_str());
  ::close(descriptor_);
}

void AppendFile::open() {
  struct stat status = {};
  const bool exists = ::stat(path_.c_str(), &status) == 0;
  is_regular_ = !exists || S_ISREG(status.st_mode);
  is_new_ = !exists;
  if (!is_regular_ && !S_ISDIR(status.st_mode)) {
    descriptor_ = open_special_file(path_);
    return;
  }
  do {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor_ < 0) throw InputError("cannot open " + what_, path_, errno);
    lock();
  } while (!has_path());  // another run renamed the file before this one locked it
  if (!exists) sync_parent(destination_of(path_));
}

/// The lock ends with the process. On a file system without locks, the file is not locked.
void AppendFile::lock() {
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(std::exchange(descriptor_, -1));
  throw ConfigError(
      fmt::format("{} '{}': another run writes to it now; give another file", what_, path_));
}

bool AppendFile::has_path() const {
  if (!is_regular_) return true;
  struct stat ours = {}, now = {};
  return ::fstat(descriptor_, &ours) == 0 && ::stat(path_.c_str(), &now) == 0 &&
         ours.st_dev == now.st_dev && ours.st_ino == now.st_ino;
}

uint64_t AppendFile::size() const {
  struct stat status = {};
  if (::fstat(descriptor_, &status) != 0) throw IoError("cannot read state of", path_, errno);
  return static_cast<uint64_t>(status.st_size);
}

void AppendFile::probe(uint64_t bytes) {
  if (!is_regular_) {  // an empty write is the only test
    if (::write(descriptor_, "", 0) < 0) throw IoError("cannot write " + what_, path_, errno);
    return;
  }
  const uint64_t size_bytes = size();
  cut(size_bytes);
  try {
    append(std::string(bytes, ' '));
  } catch (...) {
    cut(size_bytes);
    throw;
  }
  cut(size_bytes);
}

std::optional<std::string> AppendFile::set_aside() {
  const auto aside = ebb::set_aside(path_);
  if (!aside) return std::nullopt;
  // A run that opened the old file must not get its lock before this run has that of the new one.
  const UniqueFd old(std::exchange(descriptor_, -1));
  open();
  return aside;
}

void AppendFile::cut(uint64_t size_bytes) {
  if (!is_regular_) return;
  if (::ftruncate(descriptor_, static_cast<off_t>(size_bytes)) == 0) return;
  throw IoError("cannot write " + what_, path_, errno);
}

void AppendFile::append(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw IoError("cannot write " + what_, path_, errno);
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void AppendFile::sync() {
  if (::fsync(descriptor_) != 0 && errno != EINVAL && errno != EROFS) {
    throw IoError("cannot sync " + what_, path_, errno);
  }
}

}  // namespace ebb

#include "io/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "device/errors.h"
#include "io/input_file.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

/// Removes slashes at the end, so that a suffix can be appended and rename() accepts the path.
std::string trimmed(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

/// Syncs the names in a folder.
void sync_folder(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw IoError("cannot open folder", path, errno);
  const int error = ::fsync(descriptor) == 0 || errno == EINVAL ? 0 : errno;
  ::close(descriptor);
  if (error != 0) throw IoError("cannot sync folder", path, error);
}

/// Allocates bytes for a file; returns 0 or an error number. Only sets the size of the file if the
/// file system does not support allocation.
int allocate(int descriptor, uint64_t bytes) {
  if (bytes == 0) return 0;
  const auto size = static_cast<off_t>(bytes);
  int result;
  do {
    result = ::fallocate(descriptor, 0, 0, size);
  } while (result != 0 && errno == EINTR);
  if (result == 0) return 0;
  if (errno != EOPNOTSUPP) return errno;
  return ::ftruncate(descriptor, size) == 0 ? 0 : errno;
}

}  // namespace

std::string destination_of(std::string path) {
  constexpr int kMostLinks = 40;
  std::error_code error;
  for (int i = 0; i < kMostLinks && !fs::is_other(path, error); ++i) {
    const fs::path target = fs::read_symlink(path, error);
    if (error) return path;  // this is no link
    path = (fs::path(path).parent_path() / target).string();
  }
  return path;
}

NewFile::NewFile(std::string path, uint64_t bytes, FileUse use)
    : path_(destination_of(std::move(path))), bytes_(bytes), use_(use) {
  std::error_code ignored;
  if (fs::is_other(path_, ignored)) {
    descriptor_ = open_special_file(path_);
    return;
  }
  if (fs::is_directory(path_, ignored)) throw IoError("cannot write", path_, EISDIR);
  unfinished_ = path_ + std::string(kUnfinishedSuffix);
  use_ == FileUse::Create ? create() : join();
}

void NewFile::create() {
  ::unlink(unfinished_.c_str());  // never opened, because it may be a link to another file
  descriptor_ = ::open(unfinished_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw IoError("cannot create", unfinished_, errno);
  if (const int error = allocate(descriptor_, bytes_); error != 0) {
    ::close(descriptor_);
    ::unlink(unfinished_.c_str());
    throw IoError("cannot allocate " + format_bytes(bytes_) + " on the disk for", unfinished_,
                  error);
  }
}

/// Never for reading: then NFS would read the whole page for a write of a part of it, and later
/// write it back with old bytes in the part that another machine has written.
void NewFile::join() {
  descriptor_ = ::open(unfinished_.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor_ < 0) throw IoError("cannot open", unfinished_, errno);
  struct stat status = {};
  const int error = ::fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (error == 0 && static_cast<uint64_t>(status.st_size) == bytes_) return;
  ::close(descriptor_);
  if (error != 0) throw IoError("cannot read the size of", unfinished_, error);
  throw LogicError("'" + unfinished_ + "' was created with another size");
}

NewFile::~NewFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (use_ == FileUse::Create && !unfinished_.empty()) ::unlink(unfinished_.c_str());
}

void NewFile::write(uint64_t offset, std::span<const std::byte> bytes) {
  EBB_CHECK(offset <= bytes_ && bytes.size() <= bytes_ - offset, "written past " + path_);
  EBB_CHECK(!unfinished_.empty() || offset == num_written_, "written out of order: " + path_);
  while (!bytes.empty()) {
    const ssize_t done = unfinished_.empty() ? ::write(descriptor_, bytes.data(), bytes.size())
                                             : ::pwrite(descriptor_, bytes.data(), bytes.size(),
                                                        static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw IoError("cannot write", unfinished_.empty() ? path_ : unfinished_, errno);
    bytes = bytes.subspan(static_cast<size_t>(done));
    offset += static_cast<uint64_t>(done);
  }
  if (unfinished_.empty()) num_written_ = offset;
}

/// sync_file_range() writes and waits for a part of the file; then little is left for fsync(),
/// which alone also writes what a file system needs to find the bytes, and reports all errors.
void NewFile::sync(const std::function<void()>& progress) {
  constexpr uint64_t kAtOnce = uint64_t{64} << 20;
  if (unfinished_.empty()) return;
  for (uint64_t at = 0; at < bytes_; at += kAtOnce) {
    (void)::sync_file_range(
        descriptor_, static_cast<off_t>(at), static_cast<off_t>(kAtOnce),
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    progress();
  }
  if (::fsync(descriptor_) != 0) throw IoError("cannot sync", unfinished_, errno);
}

void NewFile::commit() {
  EBB_CHECK(descriptor_ >= 0, "committed twice: " + path_);
  EBB_CHECK(use_ == FileUse::Create, "committed by a process that did not create it: " + path_);
  if (!unfinished_.empty()) return close_and_rename();
  if (::close(std::exchange(descriptor_, -1)) != 0) throw IoError("cannot close", path_, errno);
}

void NewFile::close_and_rename() {
  if (::fsync(descriptor_) != 0) throw IoError("cannot sync", unfinished_, errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    const int error = errno;
    ::unlink(unfinished_.c_str());
    throw IoError("cannot close", unfinished_, error);
  }
  if (std::rename(unfinished_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(unfinished_.c_str());
    throw IoError("cannot rename '" + unfinished_ + "' to", path_, error);
  }
  sync_parent(path_);
}

void write_new_file(const std::string& path, std::string_view content) {
  NewFile file(path, content.size());
  file.write(0, std::as_bytes(std::span(content)));
  file.commit();
}

NewFolder::NewFolder(std::string path)
    : path_(trimmed(std::move(path))), unfinished_(path_ + std::string(kUnfinishedSuffix)) {
  std::error_code error;
  const bool exists = is_entry(path_);
  if (exists && !(fs::is_directory(path_, error) && fs::is_empty(path_, error))) {
    throw ConfigError("'" + path_ + "' is already there: give the name of a new folder");
  }
  if (is_entry(unfinished_)) {
    throw ConfigError("'" + unfinished_ +
                      "' is in the way: it was left by a run that was killed, or "
                      "is yours; remove it or move it away");
  }
  create_folders(unfinished_);
  if (!exists) return;
  // The folder is removed now and not after all files are written, because a link or a mount point
  // cannot be removed.
  if (::rmdir(path_.c_str()) != 0) {
    const int reason = errno;
    fs::remove_all(unfinished_, error);
    throw ConfigError("'" + path_ + "' is already there, and cannot be replaced (" +
                      std::system_category().message(reason) + "): give the name of a new folder");
  }
  gave_way_ = true;
}

NewFolder::~NewFolder() {
  if (committed_) return;
  std::error_code ignored;
  fs::remove_all(unfinished_, ignored);
  if (gave_way_) fs::create_directory(path_, ignored);
}

void NewFolder::commit() {
  EBB_CHECK(!committed_, "committed twice: " + path_);
  sync_folder(unfinished_);
  if (std::rename(unfinished_.c_str(), path_.c_str()) != 0) {
    throw IoError("cannot rename '" + unfinished_ + "' to", path_, errno);
  }
  committed_ = true;
  sync_parent(path_);
}

void sync_parent(const std::string& path) { sync_folder(folder_of(path)); }

void create_folders(const std::string& path) {
  const std::string folder = trimmed(path);
  std::error_code error;
  if (fs::is_directory(folder, error)) return;
  const std::string parent = folder_of(folder);
  if (parent != folder) create_folders(parent);
  std::error_code ignored;
  fs::create_directory(folder, error);  // another process may have created it
  if (!error && !fs::is_directory(folder, ignored)) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  if (error) throw IoError("cannot create folder", folder, error.value());
  sync_folder(parent);
}

int open_special_file(const std::string& path) {
  // Without O_NONBLOCK, opening a FIFO waits for a reader.
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    const int reason = errno;
    std::error_code ignored;
    const bool has_no_reader = reason == ENXIO && fs::is_fifo(path, ignored);
    throw IoError(has_no_reader
                      ? "no process reads this FIFO; start its reader first, then write to it:"
                      : "cannot open",
                  path, reason);
  }
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  return descriptor;
}

}  // namespace ebb

#include "io/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "device/errors.h"
#include "io/foreign_content.h"

namespace ebb {
namespace {

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  return S_ISFIFO(mode) ? "a pipe" : "a device or a socket";
}

int open_input(const std::string& path, const std::string& what) {
  // Without O_NONBLOCK, opening a FIFO waits for a writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor >= 0) return descriptor;
  const int reason = errno;
  if (reason == ENOENT) refuse_broken_link(path);
  const bool too_many = reason == EMFILE || reason == ENFILE;
  throw InputError("cannot open " + what +
                       (too_many ? " (each input stays open: raise ulimit -n, or join files)" : ""),
                   path, reason);
}

}  // namespace

// The constructor that it delegates to makes the object complete, so that the destructor closes the
// file after an exception.
InputFile::InputFile(const std::string& path, const std::string& what)
    : InputFile(path, open_input(path, what)) {
  struct stat status = {};
  if (::fstat(descriptor_, &status) != 0) throw InputError("cannot read " + what, path_, errno);
  if (!S_ISREG(status.st_mode)) {
    throw ConfigError(fmt::format("{} '{}': not a regular file (it is {})", what, path_,
                                  kind_of(status.st_mode)));
  }
  size_ = static_cast<uint64_t>(status.st_size);
  id_ = {status.st_dev, status.st_ino};
  if (size_ > kLargestPointer) return;
  std::byte content[kLargestPointer];
  read(0, std::span(content).first(size_));
  refuse_pointer(path_, std::span(content).first(size_));
}

InputFile::InputFile(const std::string& path, int descriptor)
    : path_(path), descriptor_(descriptor) {}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      size_(other.size_),
      id_(other.id_),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void InputFile::read(uint64_t offset, std::span<std::byte> out) const {
  EBB_CHECK(offset <= size_ && out.size() <= size_ - offset, "read past the end of " + path_);
  while (!out.empty()) {
    const ssize_t count = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw IoError("cannot read", path_, errno);
    if (count == 0) throw_shrank();
    out = out.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
}

void InputFile::throw_shrank() const {
  struct stat now = {};
  ::fstat(descriptor_, &now);
  throw FormatError(path_, static_cast<uint64_t>(now.st_size),
                    fmt::format("the file shrank from {} to {} bytes while it was in use; write a "
                                "new one and rename it instead",
                                size_, now.st_size));
}

bool is_entry(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::symlink_status(path, error));
}

std::string read_input_file(const std::string& path, const std::string& what, uint64_t most_bytes) {
  const InputFile file(path, what);
  if (file.size() > most_bytes) {
    throw FormatError(path, most_bytes,
                      fmt::format("{} of {}; allowed are at most {}", what,
                                  format_bytes(file.size()), format_bytes(most_bytes)));
  }
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace ebb

#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "device/errors.h"
#include "io/foreign_content.h"

namespace ebb {
namespace {

/// Closes a file descriptor at the end of a scope. A mapping does not need its descriptor.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator int() const { return number_; }

 private:
  int number_;
};

}  // namespace

MappedFile::MappedFile(const std::string& path, const std::string& what) : path_(path) {
  const int number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (number < 0) {
    const int reason = errno;
    if (reason == ENOENT) refuse_broken_link(path);
    throw IoError("cannot open " + what, path, reason);
  }
  const Descriptor file(number);
  struct stat status = {};
  if (::fstat(file, &status) != 0) throw IoError("cannot read " + what, path, errno);
  if (!S_ISREG(status.st_mode)) throw ConfigError(what + " '" + path + "': not a regular file");
  device_ = status.st_dev;
  inode_ = status.st_ino;
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) {
    throw IoError("cannot map " + what +
                      (errno == ENOMEM ? " (each file takes one of the mappings that "
                                         "vm.max_map_count allows; join small files)"
                                       : ""),
                  path, errno);
  }
  data_ = static_cast<const std::byte*>(mapped);
  try {
    refuse_lfs_pointer(path, bytes());
  } catch (...) {
    ::munmap(mapped, size_);  // there is no destructor call
    throw;
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      device_(other.device_),
      inode_(other.inode_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::check_size() const {
  struct stat now = {};
  if (::stat(path_.c_str(), &now) != 0) return;
  if (now.st_dev != device_ || now.st_ino != inode_) return;
  const auto size = static_cast<size_t>(now.st_size);
  if (size >= size_) return;
  throw FormatError(path_, size,
                    "the file shrank from " + std::to_string(size_) + " to " +
                        std::to_string(size) +
                        " bytes while it was in use; write a new one and rename it instead");
}

void MappedFile::release(size_t first, size_t count) const {
  EBB_CHECK(first <= size_ && count <= size_ - first, "the range exceeds the file");
  if (count == 0) return;
  static const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = first / page * page;
  ::madvise(const_cast<std::byte*>(data_) + begin, first + count - begin, MADV_DONTNEED);
}

}  // namespace ebb

// A whole file mapped for reading.
//
// The file must not shrink while it is mapped: a read of missing pages raises SIGBUS. check_size()
// detects this before the read. Pages that were read count as memory of this process until
// release(); the page cache keeps the pages.
//
// Thread-safety: immutable after construction. Errors: IoError; ConfigError if the path is not a
// regular file or a link whose target does not exist; FormatError if the file is a Git LFS pointer
// or shrank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ebb {

class MappedFile {
 public:
  /// `what` names the file in messages: "weights".
  MappedFile(const std::string& path, const std::string& what);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// Call before a read long after the file was mapped. Throws FormatError if the file shrank. If
  /// another file has replaced the path, the mapping keeps the old content and there is no error.
  void check_size() const;
  /// Releases the pages of a range of bytes, including pages that are only partly in the range. A
  /// later read loads the pages again.
  void release(size_t first, size_t count) const;

 private:
  std::string path_;
  uint64_t device_ = 0, inode_ = 0;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace ebb

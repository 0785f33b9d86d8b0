// A whole file mapped for reading.
//
// The file must not shrink meanwhile: the kernel then answers a read with SIGBUS, and check_size()
// says so before. Pages that were read count as this process's memory until release(); the page
// cache keeps them.
//
// Thread-safety: immutable after construction. Errors: IoError; ConfigError where it is no regular
// file; FormatError where it shrank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ebb {

class MappedFile {
 public:
  /// `what` names it in messages: "weights".
  MappedFile(const std::string& path, const std::string& what);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// For reads that come long after the file was mapped. One that was replaced stays as it was.
  void check_size() const;
  /// Gives back the pages of some bytes; those that the range has only part of go as well, and come
  /// back where they are read again.
  void release(size_t first, size_t count) const;

 private:
  std::string path_;
  uint64_t device_ = 0, inode_ = 0;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace ebb

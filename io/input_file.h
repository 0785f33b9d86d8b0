// A regular file that is read at given offsets.
//
// The file is read with pread() and not mapped, so a file that shrinks or a disk that fails gives
// an error and not a signal.
//
// Thread-safety: immutable after construction; any number of threads may read. Errors: InputError
// if the file cannot be opened; ConfigError if the path is not a regular file, or is a link whose
// target does not exist; IoError if a later read fails; FormatError if the file shrank or is a
// pointer of Git LFS or git-xet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace ebb {

/// Device and inode: two paths of one file have the same.
using FileId = std::pair<uint64_t, uint64_t>;

class InputFile {
 public:
  /// `what` names the file in messages: "weights".
  InputFile(const std::string& path, const std::string& what);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  FileId id() const { return id_; }
  /// The size when the file was opened, in bytes.
  uint64_t size() const { return size_; }
  /// Reads bytes [offset, offset + out.size()). If another file has replaced the path, the old
  /// content is read. REQUIRES: the range is within size().
  void read(uint64_t offset, std::span<std::byte> out) const;

 private:
  InputFile(const std::string& path, int descriptor);
  [[noreturn]] void throw_shrank() const;

  std::string path_;
  uint64_t size_ = 0;
  FileId id_;
  int descriptor_;
};

/// Reads a whole file. Throws FormatError if it is larger than `most_bytes`.
std::string read_input_file(const std::string& path, const std::string& what, uint64_t most_bytes);

}  // namespace ebb

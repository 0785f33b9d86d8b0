// A regular file that is read at given offsets.
//
// The file is read with pread() and not mapped, so a file that shrinks or a disk that fails gives
// an error and not a signal.
//
// Thread-safety: immutable after construction; any number of threads may read. Errors of the
// constructor: InputError if the file does not exist or cannot be opened; ConfigError if the path
// is not a regular file, or is a link whose target does not exist; FormatError if the file is a
// pointer of Git LFS or git-xet. Errors of read(): IoError if the operating system cannot read the
// bytes; FormatError if the file has become too short.
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
  /// `what` says in messages what the file contains: "weights".
  InputFile(const std::string& path, const std::string& what);
  /// `other` can only be destroyed afterwards.
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  FileId id() const { return id_; }
  /// The size in bytes when the file was opened. Bytes that are appended later are not read.
  uint64_t size() const { return size_; }
  /// Reads bytes [offset, offset + out.size()). If another file has got the same path since the
  /// file was opened, this still reads the file that was opened. REQUIRES: the range is within
  /// size(); otherwise throws LogicError.
  void read(uint64_t offset, std::span<std::byte> out) const;

 private:
  InputFile(const std::string& path, int descriptor);
  [[noreturn]] void throw_shrank() const;

  std::string path_;
  uint64_t size_ = 0;
  FileId id_;
  int descriptor_;
};

/// Whether the path exists. A broken link exists: opening it with InputFile says what is wrong.
bool is_entry(const std::string& path);

/// Reads a whole file. Throws the errors of InputFile, and FormatError if the file is larger than
/// `most_bytes`.
std::string read_input_file(const std::string& path, const std::string& what, uint64_t most_bytes);

}  // namespace ebb

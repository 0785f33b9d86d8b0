// A file to which a run appends while it runs: its log or its trace.
//
// A regular file is locked, so that two runs never write to one file; a file system without locks
// gives no such protection. A device or a FIFO is written and not locked. The name of a new file is
// synced, and the file is removed if nothing was written to it.
//
// Not thread-safe. Errors: InputError if a regular file cannot be opened; IoError for a device or a
// FIFO, and later; ConfigError if another run has the lock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ebb {

class AppendFile {
 public:
  /// Opens the file and creates it if it does not exist. Its content stays. `what` names the file
  /// in messages: "log".
  AppendFile(std::string path, std::string what);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  const std::string& path() const { return path_; }
  bool is_regular() const { return is_regular_; }
  uint64_t size() const;
  /// Tests whether the disk has space for `bytes` more bytes. The content stays.
  void probe(uint64_t bytes);
  /// Renames the old file as set_aside() does and opens a new one. Returns the new name of the old
  /// file; nullopt if it is empty or is no regular file.
  std::optional<std::string> set_aside();
  /// Keeps the first `size_bytes` bytes; appends continue there. No effect on a device or a FIFO.
  void cut(uint64_t size_bytes);
  void append(std::string_view text);
  /// Syncs the content, so that it survives a power cut.
  void sync();

  /// False if the file was removed, renamed or replaced after it was opened.
  bool has_path() const;

 private:
  void open();
  void lock();

  std::string path_, what_;
  bool is_regular_ = false;
  bool is_new_ = false;
  int descriptor_ = -1;
};

}  // namespace ebb

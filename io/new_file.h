// Files and folders that appear under their name whole or not at all.
//
// What is written goes beside the place where it will stand, is synced and then renamed; so that
// after a crash or a power cut there is the old or the new content, never a part. What was not
// committed is removed in the destructor.
//
// Thread-safety: NewFile::write() of different bytes from any threads; nothing else. Errors:
// IoError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ebb {

/// Name of what is being written: the final one and this.
inline constexpr std::string_view kUnfinishedSuffix = ".unfinished";

class NewFile {
 public:
  /// Takes all its bytes on the disk now, so that a full disk shows at once.
  NewFile(std::string path, uint64_t bytes);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  /// REQUIRES: within the bytes taken.
  void write(uint64_t offset, std::span<const std::byte> bytes);
  /// Synced, and under its own name. REQUIRES: once.
  void commit();

 private:
  std::string path_, unfinished_;
  uint64_t bytes_;
  int descriptor_ = -1;
};

/// A small file.
void write_new_file(const std::string& path, std::string_view content);

class NewFolder {
 public:
  /// ConfigError where `path` exists and is not an empty folder, which gives way; it is put back
  /// where this is not committed. Rests of an unfinished one are removed.
  explicit NewFolder(std::string path);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  /// Where to write meanwhile.
  const std::string& path() const { return unfinished_; }
  /// Under its own name, with the files that are in it: these must be synced. REQUIRES: once.
  void commit();

 private:
  std::string path_, unfinished_;
  bool gave_way_ = false;  // an empty folder of that name
  bool committed_ = false;
};

/// Makes the names in a folder last.
void sync_folder(const std::string& path);

}  // namespace ebb

// Files and folders that appear under their final name either complete or not at all.
//
// Content is written under a temporary name in the same folder, synced and then renamed. So after a
// crash or a power failure either the old or the new content is there, never a part. The destructor
// removes content that was not committed. A symbolic link stays, and the file to which it points is
// replaced. A device or a FIFO cannot be replaced: it is opened, and the content is written to it.
//
// Thread-safety: NewFile::write() may be called from any thread for different bytes; all other
// methods by one thread at a time. Errors: IoError.
// For a device or a FIFO, one thread writes in order, and commit() only closes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ebb {

/// The temporary name is the final name followed by this suffix.
inline constexpr std::string_view kUnfinishedSuffix = ".unfinished";

class NewFile {
 public:
  /// Allocates all bytes on the disk where the file system supports it, so that a full disk is
  /// detected at once. Removes a file that has the temporary name.
  NewFile(std::string path, uint64_t bytes);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  /// REQUIRES: the range is within the allocated bytes; for a device or a FIFO, it begins where the
  /// last one ended.
  void write(uint64_t offset, std::span<const std::byte> bytes);
  /// Syncs the file and renames it to its final name. REQUIRES: called once.
  void commit();

 private:
  void close_and_rename();

  std::string path_, unfinished_;  // unfinished_ is empty for a device or a FIFO
  uint64_t bytes_;
  uint64_t num_written_ = 0;  // to a device or a FIFO
  int descriptor_ = -1;
};

/// Writes a small file.
void write_new_file(const std::string& path, std::string_view content);

class NewFolder {
 public:
  /// Creates the temporary folder and missing parents. Throws ConfigError if `path` exists and is
  /// not an empty folder that can be removed, or if something has the temporary name, because it
  /// may belong to the user. An empty folder is removed, and created again if the new folder is not
  /// committed.
  explicit NewFolder(std::string path);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  /// The temporary folder to which files are written before commit().
  const std::string& path() const { return unfinished_; }
  /// Renames the folder to its final name. REQUIRES: its files are synced; called once.
  void commit();

 private:
  std::string path_, unfinished_;
  bool gave_way_ = false;  // an empty folder of that name was removed
  bool committed_ = false;
};

/// Syncs the names in the folder of a file or folder to the disk.
void sync_parent(const std::string& path);
/// Creates a folder and its missing parents, and syncs each folder in which one was created.
void create_folders(const std::string& path);
/// The path of the file to which symbolic links lead, even if that file does not exist yet. The
/// path itself if it leads to a device or a FIFO: such links (/dev/stdout) may lead to no name.
std::string destination_of(std::string path);
/// Opens a device or a FIFO for writing and returns a descriptor, which the caller closes. A FIFO
/// that no process reads is an IoError.
int open_special_file(const std::string& path);

}  // namespace ebb

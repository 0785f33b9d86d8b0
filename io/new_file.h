// Files and folders that appear under their final name either complete or not at all.
//
// Content is written under a temporary name in the same folder, synced and then renamed. So after a
// crash or a power failure either the old or the new content is there, never a part. The destructor
// removes content that was not committed. A process that is killed leaves the temporary file or
// folder.
//
// If the path of a NewFile is a symbolic link, the link stays and the file to which it leads is
// replaced. A device or a FIFO cannot be replaced: NewFile opens it and writes the content to it.
// One thread must then write all bytes in order, and commit() only closes the device or FIFO.
//
// Several processes, also of several machines, may write parts of one file. One of them creates and
// commits it; the others join it in between, and sync what they have written.
//
// Thread-safety: NewFile::write() may be called from any thread for different bytes; all other
// methods by one thread at a time. Errors: IoError; ConfigError from the constructor of NewFolder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace ebb {

/// The temporary name is the final name followed by this suffix.
inline constexpr std::string_view kUnfinishedSuffix = ".unfinished";

/// Join: another process has created the file and will commit it; this one writes a part.
enum class FileUse : uint8_t { Create, Join };

class NewFile {
 public:
  /// Create: allocates `bytes`, the size of the file, on the disk where the file system supports
  /// it, so that a full disk is detected at once. Bytes that are never written are zero. Removes a
  /// file that has the temporary name. The new file gets the default permissions, not those of the
  /// file that it replaces. REQUIRES: the folder of the file exists. Join: opens the file of the
  /// temporary name. Throws LogicError if it has another size than `bytes`. The destructor removes
  /// nothing then.
  NewFile(std::string path, uint64_t bytes, FileUse use = FileUse::Create);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  /// Writes bytes from `offset` on. REQUIRES: the range is within the size of the file; for a
  /// device or a FIFO, it begins at the end of the range that was written before.
  void write(uint64_t offset, std::span<const std::byte> bytes);
  /// Syncs what was written. Syncing may take long: meanwhile this thread calls `progress` again
  /// and again, and passes on what it throws.
  void sync(const std::function<void()>& progress);
  /// Syncs the file, renames it to its final name and syncs the folder. REQUIRES: called once; this
  /// object has created the file.
  void commit();
  /// The temporary name; empty for a device or a FIFO.
  const std::string& unfinished_path() const { return unfinished_; }

 private:
  void create();
  void join();
  void close_and_rename();

  std::string path_, unfinished_;  // unfinished_ is empty for a device or a FIFO
  uint64_t bytes_;
  FileUse use_;
  uint64_t num_written_ = 0;  // to a device or a FIFO
  int descriptor_ = -1;
};

/// Writes a whole file by a NewFile.
void write_new_file(const std::string& path, std::string_view content);

class NewFolder {
 public:
  /// Creates the temporary folder and missing parents. Throws ConfigError if `path` exists, unless
  /// it is an empty folder that can be removed; a link to a folder and a mount point cannot. Throws
  /// ConfigError if something has the temporary name, because it may belong to the user. The
  /// constructor removes the empty folder. The destructor creates it again if the new folder was
  /// not committed.
  explicit NewFolder(std::string path);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  /// The temporary folder to which files are written before commit().
  const std::string& path() const { return unfinished_; }
  /// Renames the folder to its final name. REQUIRES: its files are synced, as NewFile::commit()
  /// does it; called once.
  void commit();

 private:
  std::string path_, unfinished_;
  bool gave_way_ = false;  // an empty folder of that name was removed
  bool committed_ = false;
};

/// Syncs the folder that contains this file or folder, so that the name of the file or folder is on
/// the disk.
void sync_parent(const std::string& path);
/// Creates a folder and its missing parents, and syncs each folder in which one was created.
void create_folders(const std::string& path);
/// Follows symbolic links and returns the path to which they lead, also if nothing exists there.
/// Stops at a path that leads to a device or a FIFO, because what such a link (/dev/stdout)
/// contains may not be a path.
std::string destination_of(std::string path);
/// Opens a device or a FIFO for writing and returns a descriptor, which the caller closes. Throws
/// IoError for a FIFO that no process reads.
int open_special_file(const std::string& path);

}  // namespace ebb

// Lists the files of a folder of training data and of all folders below it, and says what it leaves
// out. It opens no file, so it cannot judge contents: TokenData adds the notes about them.
//
// Links to folders are followed. A folder that appears twice, for example because a link leads to
// the folder that contains it, is listed once. Hidden files and folders (.git) are left out: their
// names begin with a dot. The record of a token file (token_record.h) is not data: it is in neither
// list, unless its token file is missing.
//
// Thread-safe; no state. Errors: InputError if a folder or a file cannot be examined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ebb {

/// What is unusual about a file or folder. Files and folders with a note of the first group are
/// left out. Files with a note of the second group are read. TokenData makes the notes NotText and
/// Empty and those of the second group.
enum class FileNote : uint8_t {
  NotText,
  BrokenLink,
  SpecialFile,     ///< a FIFO, a socket or a device
  Hidden,          ///< a file or a folder
  RepeatedFolder,  ///< its files are listed under another path
  LoneRecord,      ///< the record of a token file that is not there
  Empty,

  RepeatedFile,  ///< another path names the same file; its tokens are read once for each path
  Json,
  Table,  ///< .csv or .tsv
  ByteOrderMark,
  /// Text in which some bytes are not UTF-8, or in which a NUL follows after the first 64 KiB.
  NotUtf8,
};

struct NotedFile {
  FileNote note;
  std::string path;
  /// What the file is if it is not text ("a PNG picture"); empty if this is unknown. The characters
  /// have static storage.
  std::string_view kind = {};
};

struct FolderFiles {
  std::vector<std::string> files;   ///< regular files, sorted by path; paths begin with `folder`
  std::vector<NotedFile> left_out;  ///< sorted by path
};

/// Throws InputError if `folder` is neither a folder nor a link to one.
FolderFiles files_under(const std::string& folder);

}  // namespace ebb

// Lists the files of a folder of training data, and says what it leaves out. It reads no file: the
// notes about contents (NotText, Empty and the second group) come from TokenData.
//
// Links to folders are followed. A folder that appears twice, for example because a link leads to
// the folder that contains it, is listed once. Hidden files and folders (.git) are left out: their
// names begin with a dot. Records of token files (token_record.h) are no data.
//
// Errors: IoError if a folder or a file cannot be examined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ebb {

/// What is unusual about a file or folder. The first group is left out, the second is data.
enum class FileNote : uint8_t {
  NotText,
  BrokenLink,
  SpecialFile,     ///< a FIFO, a socket or a device
  Hidden,          ///< a file or a folder
  RepeatedFolder,  ///< its files are listed under another path
  LoneRecord,      ///< the record of a token file that is not there
  Empty,

  RepeatedFile,  ///< read once more
  Json,
  Table,  ///< .csv or .tsv
  ByteOrderMark,
  NotUtf8,  ///< text with some bytes that are not UTF-8, or are NUL after the first 64 KiB
};

struct NotedFile {
  FileNote note;
  std::string path;
  std::string_view kind = {};  ///< of a file that is not text; empty: unknown
};

struct FolderFiles {
  std::vector<std::string> files;   ///< regular files, sorted by path
  std::vector<NotedFile> left_out;  ///< sorted by path
};

FolderFiles files_under(const std::string& folder);

}  // namespace ebb

// Where documents begin in token data: a file of int64 and nothing else, the index of each
// document's first token in the data (in all its files together), rising. Tokens before the first
// one are a document as well.
//
// The file is mapped: it must not shrink meanwhile.
//
// Thread-safety: immutable after construction.
// Errors: IoError; FormatError (the file ends within an offset; offsets that do not rise or lie
// behind the data); ConfigError (no offset at all).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "io/mapped_file.h"

namespace ebb {

class DocumentFile {
 public:
  /// Reads all of it once, to check it.
  DocumentFile(const std::string& path, uint64_t num_tokens);

  const std::string& path() const { return path_; }
  uint64_t num_documents() const;
  /// For each token of a row of them, the data's tokens [first, first + out.size()): where in the
  /// row its document begins; 0 where that is before the row.
  void read_starts(uint64_t first, std::span<int32_t> out) const;

 private:
  std::span<const int64_t> offsets() const;
  void check(uint64_t num_tokens) const;

  std::string path_;
  MappedFile file_;
};

}  // namespace ebb

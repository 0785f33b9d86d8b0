// A file of document offsets for token data. The file is an array of int64 without a header: the
// index of the first token of each document in the token data (all its files together), in
// ascending order. Tokens before the first offset are a document as well.
//
// Thread-safety: immutable after construction. Errors: those of InputFile; FormatError (the file
// ends within an offset; offsets do not ascend, or one is not in the data); ConfigError (the file
// is empty).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/input_file.h"

namespace ebb {

class DocumentFile {
 public:
  /// Reads and checks the whole file.
  DocumentFile(const std::string& path, uint64_t num_tokens);

  const std::string& path() const { return file_.path(); }
  uint64_t num_documents() const;
  uint64_t first_offset() const;
  uint64_t last_offset() const;
  /// Whether the file contains this offset.
  bool has_offset(uint64_t token) const;
  /// The row is the tokens [first, first + out.size()) of the data. Writes for each token the
  /// position in the row at which its document begins; 0 if the document begins before the row.
  void read_starts(uint64_t first, std::span<int32_t> out) const;

 private:
  uint64_t num_offsets() const { return file_.size() / sizeof(int64_t); }
  int64_t offset(uint64_t i) const;
  /// Offsets [first, first + count), or up to the end of the file.
  std::vector<int64_t> offsets(uint64_t first, uint64_t count) const;
  uint64_t first_above(uint64_t token) const;
  void check(uint64_t num_tokens) const;
  void check(uint64_t i, int64_t offset, int64_t before, uint64_t num_tokens) const;

  InputFile file_;
};

}  // namespace ebb

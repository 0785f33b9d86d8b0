// A file of document offsets for token data. The file is an array of little-endian int64 without a
// header. Each number is the index of the first token of a document in the token data (all its
// files together). Offsets are strictly ascending, so no document is empty. A document ends where
// the next one begins, and the last document ends with the data. Tokens before the first offset are
// a document as well.
//
// Thread-safety: immutable after construction; any number of threads may read. All methods except
// path() read the file. They do not check its offsets again. Errors: those of InputFile;
// FormatError (the file ends within an offset; offsets do not ascend, or one is not in [0,
// num_tokens)); ConfigError (the file is empty).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/input_file.h"

namespace ebb {

class DocumentFile {
 public:
  /// Reads and checks the whole file. `num_tokens`: of the token data.
  DocumentFile(const std::string& path, uint64_t num_tokens);

  const std::string& path() const { return file_.path(); }
  /// The number of offsets, plus 1 if there are tokens before the first one.
  uint64_t num_documents() const;
  uint64_t first_offset() const;
  uint64_t last_offset() const;
  /// Whether one of the offsets is `token`.
  bool has_offset(uint64_t token) const;
  /// For each token of [first, first + out.size()), writes where its document begins: a position
  /// that counts from `first`, or 0 if the document begins before `first`.
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

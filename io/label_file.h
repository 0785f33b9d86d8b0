// Targets beside token data: a file of int32 and nothing else, one for each token of the data (of
// all its files together), already shifted: entry i is the target at position i, -100 = ignored.
//
// The file is mapped: it must not shrink meanwhile. Pages that were read are given back at once.
//
// Thread-safety: immutable after construction.
// Errors: IoError; FormatError (the file ends within a label; a label that is neither -100 nor of
// the vocabulary); ConfigError (another number of labels than of tokens; all of them ignored).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "device/ignored_label.h"
#include "io/mapped_file.h"

namespace ebb {

class LabelFile {
 public:
  /// Reads all of it once, to check it.
  LabelFile(const std::string& path, uint64_t num_tokens, uint32_t vocabulary);

  const std::string& path() const { return path_; }
  uint64_t num_labels() const { return labels().size(); }
  /// Those that are not ignored.
  uint64_t num_targets() const { return num_targets_; }
  /// The same of labels [first, first + count). REQUIRES: they exist.
  uint64_t num_targets(uint64_t first, uint64_t count) const;
  /// Labels [first, first + out.size()). REQUIRES: they exist.
  void read(uint64_t first, std::span<int32_t> out) const;

 private:
  std::span<const int32_t> labels() const;
  void check_length(uint64_t num_tokens) const;
  uint64_t count_and_check(uint32_t vocabulary) const;

  std::string path_;
  MappedFile file_;
  uint64_t num_targets_ = 0;
};

}  // namespace ebb

// A file of labels for token data. The file is an array of int32 without a header, with one label
// for each token of the data (all its files together). Label i is the target at position i, so
// labels are already shifted; -100 means ignored.
//
// Thread-safety: immutable after construction. Errors: those of InputFile; FormatError (the file
// ends within a label; a label is neither -100 nor in the vocabulary); ConfigError (the numbers of
// labels and tokens differ; all labels are ignored).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "device/ignored_label.h"
#include "io/input_file.h"

namespace ebb {

class LabelFile {
 public:
  /// Reads and checks the whole file.
  LabelFile(const std::string& path, uint64_t num_tokens, uint64_t vocabulary);

  const std::string& path() const { return file_.path(); }
  uint64_t num_labels() const { return file_.size() / sizeof(int32_t); }
  /// The number of labels that are not ignored.
  uint64_t num_targets() const { return num_targets_; }
  /// The same for labels [first, first + count). REQUIRES: these labels exist.
  uint64_t num_targets(uint64_t first, uint64_t count) const;
  /// Reads labels [first, first + out.size()). Throws FormatError if one was changed to a value
  /// that is not allowed. REQUIRES: these labels exist.
  void read(uint64_t first, std::span<int32_t> out) const;
  /// sampled_hash() of the labels.
  uint64_t fingerprint() const;

 private:
  void check_length(uint64_t num_tokens) const;
  void check(uint64_t first, std::span<const int32_t> labels) const;

  uint64_t vocabulary_;

  InputFile file_;
  uint64_t num_targets_ = 0;
};

}  // namespace ebb

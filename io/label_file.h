// A file of labels for token data. The file is an array of little-endian int32 without a header,
// with one label for each token of the data (all its files together). Label i is what the model
// should predict at the position of token i. For next-token prediction label i is token i + 1: Ebb
// does not shift labels. The label -100 means that the position has no target.
//
// Thread-safety: immutable after construction; any number of threads may read. read(),
// fingerprint() and num_targets(first, count) read the file. Errors: those of InputFile;
// FormatError (the file ends within a label; a label is neither -100 nor in the vocabulary);
// ConfigError (the numbers of labels and tokens differ; all labels are ignored).
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
  /// The number of labels of [first, first + count) that are not ignored. REQUIRES: these labels
  /// exist.
  uint64_t num_targets(uint64_t first, uint64_t count) const;
  /// Reads labels [first, first + out.size()) and checks them again, because another process may
  /// change the file. REQUIRES: these labels exist.
  void read(uint64_t first, std::span<int32_t> out) const;
  /// A hash of the number of labels and of some of them (sampled_hash.h).
  uint64_t fingerprint() const;

 private:
  void check_length(uint64_t num_tokens) const;
  void check(uint64_t first, std::span<const int32_t> labels) const;

  uint64_t vocabulary_;

  InputFile file_;
  uint64_t num_targets_ = 0;
};

}  // namespace ebb

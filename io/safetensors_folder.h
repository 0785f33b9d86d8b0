// The weights of a folder: one model.safetensors, or several files that
// model.safetensors.index.json names. If the folder has both, model.safetensors counts, as for
// transformers, and notice() says so.
//
// Opening checks headers and index against each other and reads no data. Thread-safety: immutable
// after construction; any number of threads may read. Errors: those of SafetensorsFile; FormatError
// that names index and tensor if they disagree; ConfigError if there are no weights or if a file of
// the index is missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/safetensors.h"

namespace ebb {

/// A tensor and its file. The SafetensorsFolder owns both.
struct LocatedTensor {
  const SafetensorsFile* file = nullptr;
  const StoredTensor* stored = nullptr;

  void read_bytes(uint64_t first, std::span<std::byte> out) const {
    file->read_bytes(*stored, first, out);
  }
  void read_floats(uint64_t first, std::span<float> out) const {
    file->read_floats(*stored, first, out);
  }
};

class SafetensorsFolder {
 public:
  explicit SafetensorsFolder(std::string folder);

  const std::string& path() const { return folder_; }
  /// The tensors, file by file, in the order of their data.
  std::span<const LocatedTensor> tensors() const { return tensors_; }
  /// Null if there is no tensor with that name.
  const LocatedTensor* find(std::string_view name) const;
  uint64_t total_bytes() const { return total_bytes_; }
  /// A sentence that names the weights that are left out; empty if there are none.
  const std::string& notice() const { return notice_; }

 private:
  void open_indexed(const std::string& index);
  void list_tensors();

  std::string folder_;
  std::vector<SafetensorsFile> files_;
  std::vector<LocatedTensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;  // views of names that files_ own
  uint64_t total_bytes_ = 0;
  std::string notice_;
};

}  // namespace ebb

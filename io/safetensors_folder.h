// The weights of a folder: one model.safetensors, or several files that
// model.safetensors.index.json names. If the folder has both, only model.safetensors is read, as in
// transformers, and notice() says so.
//
// Opening checks headers and index against each other and reads no data. Thread-safety: immutable
// after construction; any number of threads may read. Errors: those of SafetensorsFile; FormatError
// if a file does not have exactly the tensors that the index names for it; ConfigError if there is
// no such folder, if it has no weights, or if a file that the index names is missing.
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

/// A tensor and its file. Both belong to the SafetensorsFolder. The functions are those of
/// SafetensorsFile.
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
  /// The tensors, file by file. Files are sorted by name, and the tensors of a file are in the
  /// order of their data.
  std::span<const LocatedTensor> tensors() const { return tensors_; }
  /// Null if there is no tensor with that name.
  const LocatedTensor* find(std::string_view name) const;
  /// The bytes of all tensors, without headers.
  uint64_t total_bytes() const { return total_bytes_; }
  /// A sentence that names the files of weights that are not read; empty if there are none.
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

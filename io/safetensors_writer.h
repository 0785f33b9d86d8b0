// Writes a safetensors file: its tensors are named first, then filled in any order, in pieces of
// any size, from any threads. It appears whole or not at all (io/new_file.h).
//
// The order of the data is that of the format's own library (larger types first, then by name): the
// same tensors give the same file.
//
// Thread-safety: write_*() of different elements from any threads; finish() when they are done.
// Errors: IoError; ConfigError where a value is too large for the stored type, or a tensor comes
// twice.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/new_file.h"
#include "io/stored_tensor.h"

namespace ebb {

class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, std::vector<TensorSpec> tensors,
                    std::map<std::string, std::string> metadata = {{"format", "pt"}});

  /// Bytes from `first` on of the i-th tensor given, as stored.
  void write_bytes(size_t tensor, uint64_t first, std::span<const std::byte> bytes);
  /// Elements from `first` on, rounded to nearest (ties to even) to the tensor's type. REQUIRES:
  /// F32, BF16 or F16.
  void write_floats(size_t tensor, uint64_t first, std::span<const float> values);
  /// Synced and in place. REQUIRES: every byte was written once.
  void finish();

 private:
  std::string path_;
  std::vector<TensorSpec> tensors_;
  std::vector<uint64_t> offsets_;  // in the file, of each tensor
  uint64_t data_bytes_ = 0;
  std::atomic<uint64_t> written_bytes_ = 0;
  std::optional<NewFile> file_;
};

}  // namespace ebb

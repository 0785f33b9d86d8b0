// Reads a safetensors file. The header is read and checked when the file is opened.
//
// Thread-safety: immutable after construction; any number of threads may read. Errors: those of
// InputFile; FormatError with tensor and offset (the content); ConfigError (the type of a tensor is
// not a weight type).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/input_file.h"
#include "io/stored_tensor.h"

namespace ebb {

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// The tensors in the order of their data.
  std::span<const StoredTensor> tensors() const { return tensors_; }
  /// Null if there is no tensor with that name.
  const StoredTensor* find(std::string_view name) const;

  /// Reads bytes [first, first + out.size()) of a tensor of this file, as stored. REQUIRES: these
  /// bytes exist.
  void read_bytes(const StoredTensor& tensor, uint64_t first, std::span<std::byte> out) const;
  /// Reads elements [first, first + out.size()) of a tensor of F64, F32, BF16 or F16, as fp32. F64
  /// is rounded to nearest, ties to even; a finite value that becomes infinite is a FormatError.
  /// The other conversions are exact, except that a NaN of F16 becomes quiet. REQUIRES: these
  /// elements exist.
  void read_floats(const StoredTensor& tensor, uint64_t first, std::span<float> out) const;

 private:
  InputFile file_;
  std::map<std::string, std::string> metadata_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;  // views of tensors_
};

}  // namespace ebb

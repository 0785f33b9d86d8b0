// Reads a safetensors file. The header is read and checked when the file is opened.
//
// Thread-safety: immutable after construction; any number of threads may read. Errors: those of
// InputFile; FormatError, which names the offset and the tensor, if the content violates the
// format; ConfigError from read_floats().
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
  /// Accepts tensors of all types of the format.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  /// The texts of the header's __metadata__, by name.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// The tensors in the order of their data.
  std::span<const StoredTensor> tensors() const { return tensors_; }
  /// Null if there is no tensor with that name. The pointer is valid as long as this object.
  const StoredTensor* find(std::string_view name) const;

  /// Reads bytes [first, first + out.size()) of a tensor, as they are stored. REQUIRES: the tensor
  /// is one of tensors(); these bytes exist.
  void read_bytes(const StoredTensor& tensor, uint64_t first, std::span<std::byte> out) const;
  /// Reads elements [first, first + out.size()) of a tensor of type F64, F32, BF16 or F16, and
  /// converts them to fp32. Throws ConfigError for other types. F64 is rounded to nearest, ties to
  /// even; throws FormatError if a finite value becomes infinite. The other conversions are exact,
  /// except that a NaN of F16 becomes quiet. REQUIRES: as read_bytes(), for elements.
  void read_floats(const StoredTensor& tensor, uint64_t first, std::span<float> out) const;

 private:
  InputFile file_;
  std::map<std::string, std::string> metadata_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;  // views of tensors_
};

}  // namespace ebb

// The description of a tensor in a safetensors file. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/dtype.h"

namespace ebb {

/// The types of the format, in the order of the official library. Files store later types first.
enum class StoredType : uint8_t {
  Bool,
  U8,
  I8,
  F8E5M2,
  F8E4M3,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  F64,
  I64,
  U64,
};

/// The name of the type in the format: "BF16".
std::string_view name_of(StoredType type);
std::optional<StoredType> find_stored_type(std::string_view name);
size_t size_of(StoredType type);
/// Whether weights are read from this type: F64, F32, BF16 or F16. fp32 represents all values of
/// the last three exactly. F64 is rounded to fp32 and never written.
bool is_weight_type(StoredType type);
/// REQUIRES: the format has this type.
StoredType stored_type_of(DType type);

/// A tensor to write.
struct TensorSpec {
  std::string name;
  StoredType type = StoredType::F32;
  std::vector<uint64_t> shape;

  uint64_t num_elements() const;
  uint64_t bytes() const { return num_elements() * size_of(type); }
};

/// "F32 [2, 3]", for messages.
std::string describe(StoredType type, const std::vector<uint64_t>& shape);

/// A tensor of a file.
struct StoredTensor : TensorSpec {
  uint64_t offset = 0;  ///< of its first byte in the file
};

}  // namespace ebb

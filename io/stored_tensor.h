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

/// The types of the format, in the order of the official library. A SafetensorsWriter writes
/// tensors of a later type before those of an earlier type.
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
/// The type with this name; nullopt if there is none.
std::optional<StoredType> find_stored_type(std::string_view name);
/// The bytes of one element.
size_t size_of(StoredType type);
/// Whether weights are read from this type: F64, F32, BF16 or F16. fp32 represents all values of
/// the last three exactly. F64 is rounded to fp32 and never written.
bool is_weight_type(StoredType type);
/// The type of the format with the same values. REQUIRES: there is one; otherwise throws
/// LogicError.
StoredType stored_type_of(DType type);

/// A tensor to write.
struct TensorSpec {
  std::string name;
  StoredType type = StoredType::F32;
  std::vector<uint64_t> shape;

  /// The product of the shape; 1 if the shape is empty. REQUIRES: it fits 64 bits.
  uint64_t num_elements() const;
  uint64_t bytes() const { return num_elements() * size_of(type); }
};

/// "F32 [2, 3]", for messages.
std::string describe(StoredType type, const std::vector<uint64_t>& shape);

/// A tensor of a file.
struct StoredTensor : TensorSpec {
  /// The offset of the first byte in the file. Only make_safetensors_header() counts it from the
  /// beginning of the data.
  uint64_t offset = 0;
};

}  // namespace ebb

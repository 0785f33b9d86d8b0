// What a safetensors file says of a tensor. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/dtype.h"

namespace ebb {

/// The types of the format, in its own order: files keep the later ones first.
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

/// As the format spells it: "BF16".
std::string_view name_of(StoredType type);
std::optional<StoredType> find_stored_type(std::string_view name);
size_t size_of(StoredType type);
/// F32, BF16 or F16: those whose values an fp32 holds exactly, and that training reads and writes.
bool is_weight_type(StoredType type);
/// REQUIRES: a type that the format has.
StoredType stored_type_of(DType type);

/// A tensor to be written.
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

#include "io/stored_tensor.h"

#include <array>

#include "device/errors.h"

namespace ebb {
namespace {

struct TypeInfo {
  std::string_view name;
  size_t bytes;
};

constexpr std::array<TypeInfo, 15> kTypes = {{{"BOOL", 1},
                                              {"U8", 1},
                                              {"I8", 1},
                                              {"F8_E5M2", 1},
                                              {"F8_E4M3", 1},
                                              {"I16", 2},
                                              {"U16", 2},
                                              {"F16", 2},
                                              {"BF16", 2},
                                              {"I32", 4},
                                              {"U32", 4},
                                              {"F32", 4},
                                              {"F64", 8},
                                              {"I64", 8},
                                              {"U64", 8}}};

const TypeInfo& info_of(StoredType type) { return kTypes[static_cast<size_t>(type)]; }

}  // namespace

std::string_view name_of(StoredType type) { return info_of(type).name; }

size_t size_of(StoredType type) { return info_of(type).bytes; }

std::optional<StoredType> find_stored_type(std::string_view name) {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].name == name) return static_cast<StoredType>(i);
  }
  return std::nullopt;
}

bool is_weight_type(StoredType type) {
  return type == StoredType::F64 || type == StoredType::F32 || type == StoredType::BF16 ||
         type == StoredType::F16;
}

StoredType stored_type_of(DType type) {
  switch (type) {
    case DType::F32:
      return StoredType::F32;
    case DType::BF16:
      return StoredType::BF16;
    case DType::F64:
      return StoredType::F64;
    case DType::I32:
      return StoredType::I32;
    case DType::F16:
      return StoredType::F16;
    case DType::I16:
      return StoredType::I16;
  }
  EBB_CHECK(false, "a type that safetensors does not have");
}

uint64_t TensorSpec::num_elements() const {
  uint64_t count = 1;
  for (const uint64_t size : shape) count *= size;
  return count;
}

std::string describe(StoredType type, const std::vector<uint64_t>& shape) {
  std::string text(name_of(type));
  text += " [";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace ebb

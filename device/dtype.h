// Element types and their conversions. Pure functions, thread-safe.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ebb {

enum class DType : uint8_t { F32, BF16, F64, I32 };

constexpr size_t size_of(DType type) {
  switch (type) {
    case DType::F32:
      return 4;
    case DType::BF16:
      return 2;
    case DType::F64:
      return 8;
    case DType::I32:
      return 4;
  }
  return 0;
}

constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::F32:
      return "fp32";
    case DType::BF16:
      return "bf16";
    case DType::F64:
      return "fp64";
    case DType::I32:
      return "int32";
  }
  return "?";
}

/// The upper half of an fp32.
struct BF16 {
  uint16_t bits = 0;

  constexpr BF16() = default;
  constexpr explicit BF16(float value);
  constexpr operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
  static constexpr BF16 from_bits(uint16_t bits) {
    BF16 result;
    result.bits = bits;
    return result;
  }
};

/// Round to nearest, ties to even; NaN stays a quiet NaN. Used for activations and gradients.
constexpr BF16::BF16(float value) {
  const uint32_t x = std::bit_cast<uint32_t>(value);
  if ((x & 0x7fffffffu) > 0x7f800000u) {
    bits = static_cast<uint16_t>((x >> 16) | 0x40);
  } else {
    bits = static_cast<uint16_t>((x + 0x7fffu + ((x >> 16) & 1)) >> 16);
  }
}

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::F32;
}
template <>
constexpr DType dtype_of<BF16>() {
  return DType::BF16;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::F64;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::I32;
}

}  // namespace ebb

// Element types and their conversions. Pure functions, thread-safe.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ebb {

/// F32, BF16 and F16 are types of weights, activations and gradients. F64 is for sums of losses and
/// for norms, I32 for tokens, positions and targets, I16 for the low halves of masters.
enum class DType : uint8_t { F32, BF16, F64, I32, F16, I16 };

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
    case DType::F16:
      return 2;
    case DType::I16:
      return 2;
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
    case DType::F16:
      return "fp16";
    case DType::I16:
      return "int16";
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

/// Rounds to nearest, ties to even. A NaN stays a quiet NaN. Used for activations and gradients.
constexpr BF16::BF16(float value) {
  const uint32_t x = std::bit_cast<uint32_t>(value);
  if ((x & 0x7fffffffu) > 0x7f800000u) {
    bits = static_cast<uint16_t>((x >> 16) | 0x40);
  } else {
    bits = static_cast<uint16_t>((x + 0x7fffu + ((x >> 16) & 1)) >> 16);
  }
}

/// IEEE binary16. The conversion to float is exact. Subnormals are converted correctly in both
/// directions, even if the thread flushes fp32 denormals to zero: the code uses integers only, and
/// every fp16 subnormal is a normal fp32.
struct F16 {
  uint16_t bits = 0;

  constexpr F16() = default;
  constexpr explicit F16(float value);
  constexpr operator float() const;
  static constexpr F16 from_bits(uint16_t bits) {
    F16 result;
    result.bits = bits;
    return result;
  }
};

/// Rounds to nearest, ties to even. Values from 65520 on become Inf. A NaN stays a quiet NaN with
/// the upper part of its payload.
constexpr F16::F16(float value) {
  const uint32_t x = std::bit_cast<uint32_t>(value);
  const uint32_t sign = x >> 16 & 0x8000u, magnitude = x & 0x7fffffffu;
  uint32_t result;
  if (magnitude > 0x7f800000u) {
    result = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {  // 65536
    result = 0x7c00u;
  } else if (magnitude < 0x33000000u) {  // 2^-25, half of the smallest
    result = 0;
  } else {
    const uint32_t exponent = magnitude >> 23;
    const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t shift = exponent < 113 ? 126 - exponent : 13;  // 113: 2^-14, the smallest normal
    const uint32_t half = 1u << (shift - 1), odd = significand >> shift & 1;
    const uint32_t rounded = (significand + half - 1 + odd) >> shift;
    // A significand that rounds up to the next power of two carries into the exponent.
    result = exponent < 113 ? rounded : ((exponent - 113) << 10) + rounded;
  }
  bits = static_cast<uint16_t>(sign | result);
}

/// NaN becomes quiet.
constexpr F16::operator float() const {
  const uint32_t sign = uint32_t{bits} << 16 & 0x80000000u;
  const uint32_t exponent = bits >> 10 & 0x1fu, fraction = bits & 0x3ffu;
  uint32_t result;
  if (exponent == 0x1f) {
    result = 0x7f800000u | (fraction ? 0x400000u | fraction << 13 : 0);
  } else if (exponent > 0) {
    result = (exponent + 112) << 23 | fraction << 13;
  } else if (fraction > 0) {
    const auto leading = static_cast<uint32_t>(std::bit_width(fraction)) - 1;
    result = (leading + 103) << 23 | (fraction << (23 - leading) & 0x7fffffu);
  } else {
    result = 0;
  }
  return std::bit_cast<float>(sign | result);
}

/// The DType of a C++ type.
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
constexpr DType dtype_of<F16>() {
  return DType::F16;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::F64;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::I32;
}
template <>
constexpr DType dtype_of<int16_t>() {
  return DType::I16;
}

/// Whether weights, activations and gradients may have this type.
constexpr bool is_float(DType type) {
  return type == DType::F32 || type == DType::BF16 || type == DType::F16;
}

/// Returns f(float{}), f(BF16{}) or f(F16{}). REQUIRES: is_float(type).
template <class F>
decltype(auto) with_float_type(DType type, const F& f) {
  if (type == DType::F32) return f(float{});
  if (type == DType::BF16) return f(BF16{});
  return f(F16{});
}

}  // namespace ebb

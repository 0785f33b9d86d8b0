// The plain C++ version of cuda/native/device_language.h, which has the contracts.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstdint>

#include "device/dtype.h"
#include "tests/cuda_emulation/grid.h"
#include "tests/cuda_emulation/sums_of_products.h"

namespace ebb {

template <class T>
T* shared_memory() {
  return reinterpret_cast<T*>(emulation::dynamic_shared_memory());
}

template <class To, class From>
To* as_wide(From* from) {
  emulation::check_alignment(from, alignof(To));
  return reinterpret_cast<To*>(from);
}

template <class T>
void store_wide(T* to, const T& value) {
  *to = value;
}

/// The value of a subnormal is an integer times 2^-24.
inline float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t{half} << 16 & 0x80000000u;
  const uint32_t exponent = half >> 10 & 0x1fu, fraction = half & 0x3ffu;
  uint32_t bits = (exponent + 112) << 23 | fraction << 13;
  if (exponent == 0x1f) bits = 0x7f800000u | (fraction != 0 ? 0x400000u | fraction << 13 : 0);
  if (exponent == 0) bits = std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24f);
  return std::bit_cast<float>(sign | bits);
}

inline uint32_t rounded_pair(float first, float second) {
  return uint32_t{BF16(first).bits} | uint32_t{BF16(second).bits} << 16;
}

template <bool kTransposed>
void load_matrices(uint32_t (&to)[4], const void* row) {
  emulation::check_alignment(row, 16);
  const auto* rows = emulation::gather(EBB_HERE, emulation::Brought::of(row));
  const int g = emulation::lane() / 4, i = emulation::lane() % 4 * 2;
  for (int matrix = 0; matrix < 4; ++matrix) {
    const auto at = [&](int r, int column) {
      return uint32_t{static_cast<const uint16_t*>(rows[8 * matrix + r].as<const void*>())[column]};
    };
    to[matrix] = kTransposed ? at(i, g) | at(i + 1, g) << 16 : at(g, i) | at(g, i + 1) << 16;
  }
}

inline void multiply_add_tile(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const emulation::TileFactors own = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  emulation::add_tile(c, emulation::gather(EBB_HERE, emulation::Brought::of(own)),
                      emulation::lane());
}

}  // namespace ebb

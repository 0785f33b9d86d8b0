// The plain version of cuda/native/device_language.h: see there.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstdint>

#include "tests/cuda_emulation/grid.h"

namespace ebb {

template <class T>
T* shared_memory() {
  return reinterpret_cast<T*>(emulation::dynamic_shared_memory());
}

/// Products of two bf16 are exact in fp32; they are added in the order of k, rounded each time.
inline void multiply_add_tile(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  struct Brought {
    uint32_t a[4], b[2];
  };
  const Brought mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  Brought of[32];
  emulation::gather(EBB_HERE, &mine, sizeof(mine), of);
  const auto half = [](uint32_t pair, int which) {
    return std::bit_cast<float>(which == 0 ? pair << 16 : pair & 0xffff0000u);
  };
  const auto a_at = [&](int row, int k) {
    const int lane = row % 8 * 4 + k % 8 / 2;
    return half(of[lane].a[row / 8 + 2 * (k / 8)], k % 2);
  };
  const auto b_at = [&](int k, int column) {
    return half(of[column * 4 + k % 8 / 2].b[k / 8], k % 2);
  };
  const int g = emulation::lane() / 4, i = emulation::lane() % 4 * 2;
  for (int part = 0; part < 4; ++part) {
    const int row = g + part / 2 * 8, column = i + part % 2;
    for (int k = 0; k < 16; ++k) c[part] += a_at(row, k) * b_at(k, column);
  }
}

}  // namespace ebb

// Loads and stores of neighbouring elements together, up to 16 bytes an access. The memory traffic
// of a kernel reaches the rate of the device's memory only with wide accesses.
//
// Addresses of tensors may have any alignment. If one is not aligned, a kernel uses narrow
// accesses. It must then compute the same bits, because results do not depend on the placement of
// tensors.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "cuda/kernels/device_code.h"

namespace ebb::cuda {

/// kCount neighbouring elements.
template <class T, int kCount>
struct alignas(kCount * sizeof(T) < 16 ? kCount * sizeof(T) : 16) Group {
  T of[kCount];
};

/// The number of elements of a 16-byte access.
template <class T>
inline constexpr int kWide = 16 / sizeof(T);

/// Rounds each value once. REQUIRES for BF16: kCount is even.
template <class T, int kCount>
__device__ __forceinline__ Group<T, kCount> rounded(const float (&values)[kCount]) {
  Group<T, kCount> result;
  if constexpr (std::is_same_v<T, BF16>) {
    static_assert(kCount % 2 == 0);
    struct Pairs {
      uint32_t of[kCount / 2];
    } pairs;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      pairs.of[i] = rounded_pair(values[2 * i], values[2 * i + 1]);
    }
    result = std::bit_cast<Group<T, kCount>>(pairs);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) result.of[i] = T(values[i]);
  }
  return result;
}

inline bool is_aligned(const void* p, size_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

/// Elements [first, first + kCount) of an array of n; zeros after the end. kIsWide:
/// from + first is aligned as a group, and the group ends at n or before, or begins at n or after.
template <bool kIsWide, int kCount, class T>
__device__ __forceinline__ Group<T, kCount> load_group(const T* from, int64_t first, int64_t n) {
  Group<T, kCount> result = {};
  if constexpr (kIsWide) {
    if (first < n) result = *as_wide<const Group<T, kCount>>(from + first);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (first + i < n) result.of[i] = from[first + i];
    }
  }
  return result;
}

template <bool kIsWide, int kCount, class T>
__device__ __forceinline__ void store_group(T* to, int64_t first, int64_t n,
                                            const Group<T, kCount>& group) {
  if constexpr (kIsWide) {
    if (first < n) store_wide(as_wide<Group<T, kCount>>(to + first), group);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (first + i < n) to[first + i] = group.of[i];
    }
  }
}

}  // namespace ebb::cuda

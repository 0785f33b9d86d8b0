// The parts of CUDA's language that kernels use and plain C++ cannot express. The emulated GPU of
// the tests has a header of the same name.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstdint>

namespace ebb {

/// The shared memory of the block, of the size given in the launch, aligned to 16 bytes.
template <class T>
__device__ __forceinline__ T* shared_memory() {
  extern __shared__ __align__(16) unsigned char ebb_shared_bytes[];
  return reinterpret_cast<T*>(ebb_shared_bytes);
}

/// The elements at this address as one value of type To, for accesses of several elements together.
/// REQUIRES: the address is aligned as To. Otherwise the access faults; the emulated GPU checks it.
template <class To, class From>
__device__ __forceinline__ To* as_wide(From* from) {
  return reinterpret_cast<To*>(from);
}

/// Stores an aligned value to memory of the device: 16 n bytes with n instructions, where the
/// compiler may use narrower ones for a plain assignment; other sizes with a plain assignment.
/// REQUIRES: global memory.
template <class T>
__device__ __forceinline__ void store_wide(T* to, const T& value) {
  if constexpr (sizeof(T) % 16 == 0) {
    struct Words {
      uint32_t of[sizeof(T) / 4];
    };
    const auto words = std::bit_cast<Words>(value);
    const size_t address = __cvta_generic_to_global(to);
#pragma unroll
    for (size_t i = 0; i < sizeof(T) / 4; i += 4) {
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                   :
                   : "l"(address + 4 * i), "r"(words.of[i]), "r"(words.of[i + 1]),
                     "r"(words.of[i + 2]), "r"(words.of[i + 3])
                   : "memory");
    }
  } else {
    *to = value;
  }
}

/// The value of an fp16, exact, subnormals included.
__device__ __forceinline__ float half_to_float(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

/// Two fp32, rounded to the nearest bf16, ties to even: `first` in the lower half. The bits are
/// those of BF16 (device/dtype.h), except for a NaN, which stays a NaN.
__device__ __forceinline__ uint32_t rounded_pair(float first, float second) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

/// c (16 x 8, fp32) += a (16 x 16, bf16) b (16 x 8, bf16), by all lanes of a warp together.
///
/// With g = lane / 4 and i = 2 (lane % 4), a lane holds, two neighbours in a register:
///   a: (g, i), (g, i + 1) | (g + 8, i), .. | (g, i + 8), .. | (g + 8, i + 8), ..
///   b: (i, g), (i + 1, g) | (i + 8, g), (i + 9, g)
///   c: (g, i), (g, i + 1), (g + 8, i), (g + 8, i + 1)
__device__ __forceinline__ void multiply_add_tile(float (&c)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Loads four matrices of 8 x 8 bf16 from shared memory, by all lanes of a warp together. The
/// lane with index i gives the address of row i % 8 of matrix i / 8: 16 bytes, aligned to 16.
///
/// With g = lane / 4 and i = 2 (lane % 4), a lane gets of matrix m in to[m], the first in the lower
/// half: (g, i), (g, i + 1); with kTransposed: (i, g), (i + 1, g). See "Warp-level matrix load
/// instruction: ldmatrix" (.m8n8.x4.b16, .trans) in NVIDIA's PTX ISA.
template <bool kTransposed>
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  }
}

}  // namespace ebb

// The micro-kernel of all matrix products. Compiled once for each instruction set: include this
// file only in a foreach_target source.
#if defined(EBB_HOST_KERNELS_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_HOST_KERNELS_GEMM_INL_H_
#undef EBB_HOST_KERNELS_GEMM_INL_H_
#else
#define EBB_HOST_KERNELS_GEMM_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "device/dtype.h"
#include "device/f16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<FloatTag>;
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(FloatTag()));

/// Strides in elements of the operands of one tile; b's and c's columns are contiguous.
struct TileStrides {
  int64_t a_row, a_k, b_k, c_row;
};

struct NothingBeside {
  void operator()(int64_t) const {}
};

/// c (kRows, kVecs * kLanes) = the chain over a (kRows, k) b (k, ...), from zero or continued from
/// c. The kernel needs kRows * kVecs + kVecs + 1 vector registers. `beside(link)` is called before
/// each link.
template <int kRows, int kVecs, class Beside = NothingBeside>
HWY_INLINE void micro_kernel(int64_t k, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                             float* HWY_RESTRICT c, const TileStrides& stride, bool from_zero,
                             const Beside& beside = {}) {
  const FloatTag d;
  FloatVec sum[kRows][kVecs];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) {
      sum[r][v] = from_zero ? hn::Zero(d) : hn::LoadU(d, c + r * stride.c_row + v * kLanes);
    }
  }
  for (int64_t i = 0; i < k; ++i) {
    beside(i);
    FloatVec bv[kVecs];
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) bv[v] = hn::LoadU(d, b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const FloatVec av = hn::Set(d, a[r * stride.a_row]);
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v) sum[r][v] = hn::MulAdd(av, bv[v], sum[r][v]);
    }
    a += stride.a_k;
    b += stride.b_k;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) hn::StoreU(sum[r][v], d, c + r * stride.c_row + v * kLanes);
  }
}

#if HWY_TARGET != HWY_SCALAR
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const BF16* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, &p->bits));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const F16* p) {
  return load_f16(d, p);
}

/// to[j * width + i] = from[i * stride + j] for i, j in 0..kSide-1. Each stage moves the lowest bit
/// of the column number to the top of the row number, and the lowest bit of the row number to the
/// top of the column number. After log2(kSide) stages the two numbers are exchanged.
template <int kSide, class T>
HWY_INLINE void transpose_square(float* to, int64_t width, const T* from, int64_t stride) {
  const hn::FixedTag<float, kSide> d;
  hn::Vec<decltype(d)> v[kSide], next[kSide];
#pragma GCC unroll 16
  for (int i = 0; i < kSide; ++i) v[i] = load_floats(d, from + i * stride);
#pragma GCC unroll 4
  for (int stage = 1; stage < kSide; stage *= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < kSide / 2; ++i) {
      next[i] = hn::ConcatEven(d, v[2 * i + 1], v[2 * i]);
      next[i + kSide / 2] = hn::ConcatOdd(d, v[2 * i + 1], v[2 * i]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i) v[i] = next[i];
  }
#pragma GCC unroll 16
  for (int j = 0; j < kSide; ++j) hn::StoreU(v[j], d, to + j * width);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif

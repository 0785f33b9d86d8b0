// Tiles of attention: loading, products, masks. Per-target code, for foreach_target files.
#if defined(EBB_HOST_KERNELS_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_HOST_KERNELS_ATTENTION_INL_H_
#undef EBB_HOST_KERNELS_ATTENTION_INL_H_
#else
#define EBB_HOST_KERNELS_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "device/host/kernels/attention.h"
#include "device/host/kernels/gemm-inl.h"
#include "device/host/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

constexpr int kTileStep = 4;  // rows of one micro-kernel; divides kTile
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
constexpr int kTileVectors = 4;
#else
constexpr int kTileVectors = 2;
#endif

/// c (rows, columns) = or += a (rows, k) b (k, columns). Rows are rounded up to kTileStep; columns
/// % 16 == 0.
void multiply(int64_t rows, int64_t columns, int64_t k, const float* a, const float* b, float* c,
              const TileStrides& stride, bool from_zero) {
  constexpr int64_t kStrip = kTileVectors * kLanes;
  for (int64_t r = 0; r < rows; r += kTileStep) {
    const float* a_rows = a + r * stride.a_row;
    float* c_rows = c + r * stride.c_row;
    int64_t j = 0;
    for (; j + kStrip <= columns; j += kStrip) {
      micro_kernel<kTileStep, kTileVectors>(k, a_rows, b + j, c_rows + j, stride, from_zero);
    }
    for (; j < columns; j += kLanes) {
      micro_kernel<kTileStep, 1>(k, a_rows, b + j, c_rows + j, stride, from_zero);
    }
  }
}

/// One head's rows of a (B, T, columns) tensor: `column` is the head's first.
struct HeadRows {
  int64_t first_element, row_stride, head_size, padded_head;

  HeadRows(const AttentionCall& call, int64_t b, int64_t columns, int64_t column)
      : first_element(b * call.num_tokens * columns + column),
        row_stride(columns),
        head_size(call.head_size),
        padded_head(call.padded_head()) {}

  /// `count` rows from `first`, zero-padded to kTile rows of padded_head floats.
  template <class T>
  void load_tile(const void* from, int64_t first, int64_t count, float* to) const {
    const T* rows = static_cast<const T*>(from) + first_element + first * row_stride;
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t i = 0; i < head_size; i += kWide) {
        store(to + r * padded_head + i, load_up_to(rows + r * row_stride + i, head_size - i));
      }
    }
    std::fill_n(to + count * padded_head, (kTile - count) * padded_head, 0.0f);
  }

  template <class T>
  void store_tile(void* to, int64_t first, int64_t count, const float* from) const {
    T* rows = static_cast<T*>(to) + first_element + first * row_stride;
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t i = 0; i < head_size; i += kWide) {
        store_up_to(rows + r * row_stride + i, load(from + r * padded_head + i), head_size - i);
      }
    }
  }
};

/// to (width, kTile) = transpose of from (kTile, width); width % 16 == 0.
HWY_MAYBE_UNUSED void transpose_tile(const float* from, int64_t width, float* to) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t r = 0; r < kTile; ++r) {
    for (int64_t i = 0; i < width; ++i) to[i * kTile + r] = from[r * width + i];
  }
#else
  for (int64_t r = 0; r < kTile; r += 4) {
    for (int64_t i = 0; i < width; i += 4) {
      transpose_4x4(to + i * kTile + r, kTile, from + r * width + i, width);
    }
  }
#endif
}

/// For each query of one row of the batch the keys it sees: [first, end), both ascending in the
/// query.
struct Visible {
  int32_t* first;
  int32_t* end;

  void find(const AttentionCall& call, int64_t b) const {
    const int64_t n = call.num_tokens;
    const int32_t* starts =
        call.document_starts == nullptr ? nullptr : call.document_starts + b * n;
    for (int64_t i = n - 1; i >= 0; --i) {
      first[i] = starts == nullptr ? 0 : starts[i];
      const bool last_of_document = i == n - 1 || (starts != nullptr && starts[i + 1] == i + 1);
      if (call.causal || last_of_document) {
        end[i] = static_cast<int32_t>(i) + 1;
      } else {
        end[i] = end[i + 1];
      }
    }
  }
};

/// The part of a tile's row that its query sees.
struct Span {
  int64_t begin, end;

  Span(const Visible& visible, int64_t query, int64_t first_key)
      : begin(std::clamp<int64_t>(visible.first[query] - first_key, 0, kTile)),
        end(std::clamp<int64_t>(visible.end[query] - first_key, 0, kTile)) {}
  bool empty() const { return begin >= end; }

  void fill_outside(float* row, float value) const {
    if (begin > 0) std::fill(row, row + begin, value);
    if (end < kTile) std::fill(row + end, row + kTile, value);
  }
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif

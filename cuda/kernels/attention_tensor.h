// Tiles of bf16 in shared memory and in registers, and their products on tensor cores.
//
// A warp owns 16 rows of a tile. kHead is the size of a head, padded with zeros to 64 or 128.
//
// A lane's factors of a product are loaded in one of two ways, with the same results. kMatrices:
// with ldmatrix, from tiles as they are. Otherwise: with loads of two elements; a tile over whose
// rows a product sums is then also stored transposed ("exchanged"), with bank conflicts. On an H200
// the forward of GPT-2's shape takes 0.84 x the time with ldmatrix, but the backward 1.08 x. So
// each has its own way. Heads of 128 were not compared.
#pragma once

#include <type_traits>

#include "cuda/kernels/attention.h"

namespace ebb::cuda {

inline constexpr int kTensorWarps = 4;
inline constexpr int kTensorThreads = kTensorWarps * kWarp;
inline constexpr int kWarpRows = 16;
inline constexpr int kTensorRows = kTensorWarps * kWarpRows;
/// Blocks of a multiprocessor for which the compiler keeps registers. With its own choice some
/// kernels of heads of 64 spill.
template <int kHead>
inline constexpr int kTensorBlocks = kHead <= 64 ? 3 : 2;

/// Calls f with kHead, as an integral_constant.
template <class F>
void with_padded_head(const AttentionOperands& operands, const F& f) {
  if (operands.head_size <= 64) return f(std::integral_constant<int, 64>{});
  f(std::integral_constant<int, 128>{});
}

/// Rows of bf16 in shared memory, with a stride that avoids bank conflicts in a warp.
template <int kColumns>
struct BF16Rows {
  static constexpr int kStride = kColumns + 8;
  BF16* at;
  __device__ BF16* row(int i) const { return at + i * kStride; }
  static constexpr int64_t count(int rows) { return int64_t{rows} * kStride; }
};

struct alignas(16) EightBF16 {
  BF16 of[8];
};

/// Can rows of heads be read eight elements at a time?
inline bool rows_are_wide(const AttentionOperands& f) {
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  return f.head_size % 8 == 0 && aligned(f.qkv) && aligned(f.out) && aligned(f.dout);
}

/// The rows of a head that load_tile() loads, from token `first` on. wide: eight elements at a
/// time.
struct RowSource {
  const BF16* from;
  int64_t stride;
  int first, num_tokens, size;
  bool wide;

  /// Columns [column, column + 8) of row i; zeros outside of the head and after the last token.
  __device__ EightBF16 eight(int i, int column) const {
    EightBF16 result = {};
    if (first + i >= num_tokens || column >= size) return result;
    const BF16* at = from + (first + i) * stride + column;
    if (wide) return *as_wide<const EightBF16>(at);
    for (int e = 0; e < 8; ++e) {
      if (column + e < size) result.of[e] = at[e];
    }
    return result;
  }
};

/// Loads kRows rows into `rows` (kAsTheyAre), and transposed into `exchanged` (kExchanged).
template <int kRows, int kHead, bool kAsTheyAre, bool kExchanged>
__device__ void load_tile(const BF16Rows<kHead>& rows, const BF16Rows<kRows>& exchanged,
                          const RowSource& source) {
  constexpr int kEights = kHead / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kEights; i += kTensorThreads) {
    const int row = i / kEights, column = i % kEights * 8;
    const EightBF16 values = source.eight(row, column);
    if constexpr (kAsTheyAre) *as_wide<EightBF16>(rows.row(row) + column) = values;
    if constexpr (kExchanged) {
      for (int e = 0; e < 8; ++e) exchanged.row(column + e)[row] = values.of[e];
    }
  }
}

struct alignas(4) TwoBF16 {
  BF16 first, second;
};
__device__ __forceinline__ uint32_t load_pair(const BF16* at) {
  return std::bit_cast<uint32_t>(*as_wide<const TwoBF16>(at));
}
// The row and the column of a lane's elements in a tile: see multiply_add_tile().
__device__ __forceinline__ int lane_row() { return lane_index() / 4; }
__device__ __forceinline__ int lane_column() { return lane_index() % 4 * 2; }

__device__ __forceinline__ void put_right(uint32_t (&b)[2][2], const uint32_t (&matrices)[4]) {
  b[0][0] = matrices[0];
  b[0][1] = matrices[1];
  b[1][0] = matrices[2];
  b[1][1] = matrices[3];
}

/// Loads the left factor of a product: sixteen rows from `row` on, sixteen columns from `column`
/// on.
template <bool kMatrices, class Rows>
__device__ __forceinline__ void load_left(uint32_t (&a)[4], const Rows& rows, int row, int column) {
  if constexpr (kMatrices) {
    const int lane = lane_index();
    load_matrices<false>(a, rows.row(row + lane % 16) + column + lane / 16 * 8);
  } else {
    const int r = row + lane_row(), c = column + lane_column();
    a[0] = load_pair(rows.row(r) + c);
    a[1] = load_pair(rows.row(r + 8) + c);
    a[2] = load_pair(rows.row(r) + c + 8);
    a[3] = load_pair(rows.row(r + 8) + c + 8);
  }
}

/// Loads two right factors. Their eight columns each are the rows from `row` on in memory.
template <bool kMatrices, class Rows>
__device__ __forceinline__ void load_right(uint32_t (&b)[2][2], const Rows& rows, int row,
                                           int column) {
  if constexpr (kMatrices) {
    const int lane = lane_index();
    uint32_t matrices[4];
    load_matrices<false>(matrices,
                         rows.row(row + lane / 16 * 8 + lane % 8) + column + lane / 8 % 2 * 8);
    put_right(b, matrices);
  } else {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const BF16* at = rows.row(row + n * 8 + lane_row()) + column + lane_column();
      b[n][0] = load_pair(at);
      b[n][1] = load_pair(at + 8);
    }
  }
}

/// Loads two right factors. Their eight columns each are the columns from `column` on in memory.
template <class Rows>
__device__ __forceinline__ void load_right_transposed(uint32_t (&b)[2][2], const Rows& rows,
                                                      int row, int column) {
  const int lane = lane_index();
  uint32_t matrices[4];
  load_matrices<true>(matrices, rows.row(row + lane % 16) + column + lane / 16 * 8);
  put_right(b, matrices);
}

/// A tile over whose rows a product sums. SummedRows: ldmatrix transposes it while it loads.
/// ExchangedRows: it has a transposed copy. load() loads right factors for two times eight columns
/// from `column` on.
template <int kHead>
struct SummedRows {
  BF16Rows<kHead> rows;
  __device__ __forceinline__ void load(uint32_t (&b)[2][2], int row, int column) const {
    load_right_transposed(b, rows, row, column);
  }
};
template <int kRows, int kHead>
struct ExchangedRows {
  BF16Rows<kHead> rows;  // as they are, for other products
  BF16Rows<kRows> exchanged;
  __device__ __forceinline__ void load(uint32_t (&b)[2][2], int row, int column) const {
    load_right<false>(b, exchanged, column, row);
  }
};

/// c = sixteen rows of `left` times kCount rows of `right`, over kHead columns.
template <bool kMatrices, int kCount, int kHead>
__device__ __forceinline__ void multiply_heads(float (&c)[kCount / 8][4],
                                               const BF16Rows<kHead>& left, int row,
                                               const BF16Rows<kHead>& right) {
#pragma unroll
  for (int n = 0; n < kCount / 8; ++n) {
    for (int e = 0; e < 4; ++e) c[n][e] = 0.0f;
  }
#pragma unroll
  for (int k = 0; k < kHead; k += 16) {
    uint32_t a[4];
    load_left<kMatrices>(a, left, row, k);
#pragma unroll
    for (int n = 0; n < kCount / 8; n += 2) {
      uint32_t b[2][2];
      load_right<kMatrices>(b, right, n * 8, k);
      multiply_add_tile(c[n], a, b[0]);
      multiply_add_tile(c[n + 1], a, b[1]);
    }
  }
}

/// Converts the result of a product, in registers, to the left factor of the next product. Each
/// element becomes kParts bf16: the rounded element, then the rounded remainder, and so on. Three
/// bf16 represent an fp32 exactly.
template <int kParts>
__device__ __forceinline__ void round_left(uint32_t (&a)[kParts][4], const float (&low)[4],
                                           const float (&high)[4]) {
  float rest[8] = {low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const uint32_t rounded = rounded_pair(rest[2 * pair], rest[2 * pair + 1]);
      a[part][pair] = rounded;
      rest[2 * pair] -= std::bit_cast<float>(rounded << 16);
      rest[2 * pair + 1] -= std::bit_cast<float>(rounded & 0xffff0000u);
    }
  }
}

/// to (16, kHead) += x (16, kCount), split into kParts bf16, times `rows` (kCount, kHead), which
/// are SummedRows or ExchangedRows.
template <int kParts, int kCount, int kHead, class Rows>
__device__ __forceinline__ void add_product(float (&to)[kHead / 8][4],
                                            const float (&x)[kCount / 8][4], const Rows& rows) {
#pragma unroll
  for (int k = 0; k < kCount / 16; ++k) {
    uint32_t a[kParts][4];
    round_left(a, x[2 * k], x[2 * k + 1]);
#pragma unroll
    for (int n = 0; n < kHead / 8; n += 2) {
      uint32_t b[2][2];
      rows.load(b, k * 16, n * 8);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        multiply_add_tile(to[n], a[part], b[0]);
        multiply_add_tile(to[n + 1], a[part], b[1]);
      }
    }
  }
}

/// Stores a warp's sixteen rows, from token `first` on, multiplied by `factor`, one factor for each
/// of the lane's two rows.
template <int kHead>
__device__ __forceinline__ void store_tile(BF16* to, int64_t stride, int first, int num_tokens,
                                           int size, const float (&from)[kHead / 8][4],
                                           const float (&factor)[2]) {
#pragma unroll
  for (int n = 0; n < kHead / 8; ++n) {
    for (int e = 0; e < 4; ++e) {
      const int token = first + lane_row() + e / 2 * 8, column = n * 8 + lane_column() + e % 2;
      if (token < num_tokens && column < size) {
        to[token * stride + column] = BF16(from[n][e] * factor[e / 2]);
      }
    }
  }
}

}  // namespace ebb::cuda

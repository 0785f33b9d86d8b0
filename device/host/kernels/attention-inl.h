// Tiles of attention: loads, products, masks. Compiled once for each instruction set: include this
// file only in a foreach_target source.
#if defined(EBB_HOST_KERNELS_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_HOST_KERNELS_ATTENTION_INL_H_
#undef EBB_HOST_KERNELS_ATTENTION_INL_H_
#else
#define EBB_HOST_KERNELS_ATTENTION_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <limits>

#include "device/host/kernels/attention.h"
#include "device/host/kernels/dropout-inl.h"
#include "device/host/kernels/gemm-inl.h"
#include "device/host/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

constexpr int kStep = 4;  // rows of one micro-kernel: a strip of a tile
constexpr int64_t kStrips = kTile / kStep;
constexpr int64_t kGroups = kTile / kWide;
// Wider instruction sets have smaller numbers, also in newer versions of Highway.
#if HWY_TARGET <= HWY_AVX3
constexpr int kTileVectors = 4;
#else
constexpr int kTileVectors = 2;  // 16 columns are a multiple of two vectors
#endif

struct Range {
  int64_t begin, end;
};

/// c (kStep, columns) = or += a (kStep, k) b (k, columns), for the columns of a range whose ends
/// are multiples of kWide.
HWY_MAYBE_UNUSED void multiply_strip(const Range& columns, int64_t k, const float* a,
                                     const float* b, float* c, const TileStrides& stride,
                                     bool from_zero) {
  constexpr int64_t kFull = kTileVectors * kLanes;
  int64_t j = columns.begin;
  for (; j + kFull <= columns.end; j += kFull) {
    micro_kernel<kStep, kTileVectors>(k, a, b + j, c + j, stride, from_zero);
  }
  if constexpr (kTileVectors == 4) {
    const int64_t left = columns.end - j;
    if (left == 3 * kLanes) return micro_kernel<kStep, 3>(k, a, b + j, c + j, stride, from_zero);
    if (left == 2 * kLanes) return micro_kernel<kStep, 2>(k, a, b + j, c + j, stride, from_zero);
    if (left == kLanes) return micro_kernel<kStep, 1>(k, a, b + j, c + j, stride, from_zero);
  }
}

/// The rows of one head in a tensor (B, T, columns) or (B, num_rows, columns). `column` is the
/// first column of the head.
struct HeadRows {
  int64_t first_element, row_stride, head_size, padded_head;

  HeadRows(const AttentionOperands& operands, int64_t b, int64_t columns, int64_t column)
      : HeadRows(operands, b, columns, column, operands.num_tokens) {}
  HeadRows(const AttentionOperands& operands, int64_t b, int64_t columns, int64_t column,
           int64_t num_rows)
      : first_element(b * num_rows * columns + column),
        row_stride(columns),
        head_size(operands.head_size),
        padded_head(ebb::padded_head(operands)) {}

  /// Loads `count` rows from `first` on, multiplied by `factor` and zero-padded to kTile rows of
  /// padded_head floats.
  template <class T>
  void load_tile(const void* from, int64_t first, int64_t count, float factor, float* to) const {
    const T* rows = static_cast<const T*>(from) + first_element + first * row_stride;
    const Wide factors = broadcast(factor);
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t i = 0; i < head_size; i += kWide) {
        const Wide v = load_up_to(rows + r * row_stride + i, head_size - i);
        store(to + r * padded_head + i, v * factors);
      }
    }
    std::fill_n(to + count * padded_head, (kTile - count) * padded_head, 0.0f);
  }

  /// Prefetches rows that are loaded soon. The rows are far apart, so the hardware does not
  /// prefetch them.
  template <class T>
  HWY_INLINE void prefetch(const void* from, int64_t first, int64_t count) const {
    const T* row = static_cast<const T*>(from) + first_element + first * row_stride;
    for (int64_t r = 0; r < count; ++r, row += row_stride) {
      constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
      for (int64_t i = 0; i < head_size; i += kLine) hwy::Prefetch(row + i);
    }
  }

  /// Stores rows; row r is multiplied by factor_of(r).
  template <class T, class Factor>
  void store_tile(void* to, int64_t first, int64_t count, const float* from,
                  const Factor& factor_of) const {
    T* rows = static_cast<T*>(to) + first_element + first * row_stride;
    for (int64_t r = 0; r < count; ++r) {
      const Wide factor = broadcast(factor_of(r));
      for (int64_t i = 0; i < head_size; i += kWide) {
        const Wide v = load(from + r * padded_head + i) * factor;
        store_up_to(rows + r * row_stride + i, v, head_size - i);
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
      transpose_square<4>(to + i * kTile + r, kTile, from + r * width + i, width);
    }
  }
#endif
}

/// The keys [first, end) that each query of one row of the batch sees. Both bounds ascend with the
/// query. The ranges of neighbouring queries overlap or touch. Padding up to a whole tile sees no
/// keys.
struct Visible {
  int32_t* first;
  int32_t* end;

  void find(const AttentionOperands& operands, int64_t b) const {
    const int64_t n = operands.num_tokens;
    if (operands.cache != nullptr) return find_in_cache(operands, b);
    if (operands.document_starts == nullptr) {
      std::fill_n(first, n, 0);
    } else {
      std::copy_n(operands.document_starts + b * n, n, first);
    }
    for (int64_t i = n - 1; i >= 0; --i) {
      const bool last_of_document = i == n - 1 || first[i + 1] == i + 1;
      end[i] = operands.causal || last_of_document ? static_cast<int32_t>(i) + 1 : end[i + 1];
    }
    for (int64_t i = operands.window; operands.window > 0 && i < n; ++i) {
      first[i] = std::max(first[i], static_cast<int32_t>(i - operands.window + 1));
    }
    std::fill_n(first + n, round_up(n, kTile) - n, static_cast<int32_t>(n));
    std::fill_n(end + n, round_up(n, kTile) - n, static_cast<int32_t>(n));
  }

 private:
  void find_in_cache(const AttentionOperands& operands, int64_t b) const {
    const int64_t n = operands.num_tokens;
    const auto num_keys = static_cast<int32_t>(operands.num_keys(b));
    const auto window = static_cast<int32_t>(operands.window);
    for (int64_t i = 0; i < n; ++i) {
      end[i] = operands.positions[b * n + i] + 1;
      first[i] = window > 0 ? std::max(0, end[i] - window) : 0;
    }
    std::fill_n(first + n, round_up(n, kTile) - n, num_keys);
    std::fill_n(end + n, round_up(n, kTile) - n, num_keys);
  }
};

/// The visible scores of one tile of queries times one tile of keys. Scores are stored as (key,
/// query): a vector contains the scores of one key for a group of kWide queries.
struct View {
  const int32_t *first, *end;  // of the queries of the tile
  int64_t key;                 // the first key of the tile

  View(const Visible& visible, int64_t query, int64_t first_key)
      : first(visible.first + query), end(visible.end + query), key(first_key) {}

  bool empty() const { return first[0] >= key + kTile || end[kTile - 1] <= key; }

  /// The keys that at least one of these queries sees, counted from the first key of the tile.
  Range keys_of(int64_t query, int64_t count) const {
    const int64_t begin = std::clamp<int64_t>(first[query] - key, 0, kTile);
    return {begin, std::clamp<int64_t>(end[query + count - 1] - key, begin, kTile)};
  }
  /// The keys that at least one query of a group sees, rounded to whole strips as in QueryRanges.
  Range keys_of_group(int64_t group) const {
    const Range keys = keys_of(group * kWide, kWide);
    return {keys.begin / kStep * kStep, round_up(keys.end, kStep)};
  }
  /// The keys that all queries of a group see.
  Range clear_keys_of_group(int64_t group) const {
    const int64_t query = group * kWide;
    return {std::clamp<int64_t>(first[query + kWide - 1] - key, 0, kTile),
            std::clamp<int64_t>(end[query] - key, 0, kTile)};
  }
};

/// For each strip of keys, the queries that see at least one of its keys, rounded to whole groups.
struct QueryRanges {
  Range of_strip[kStrips];

  explicit QueryRanges(const View& view) {
    int64_t begin = 0, end = 0;
    for (int64_t strip = 0; strip < kStrips; ++strip) {
      const int64_t key = view.key + strip * kStep;
      while (begin < kTile && view.end[begin] <= key) ++begin;
      while (end < kTile && view.first[end] < key + kStep) ++end;
      const int64_t first = begin / kWide * kWide;
      of_strip[strip] = {first, std::max(first, round_up(end, kWide))};
    }
  }
};

/// Sets the scores that a group of queries must not see to -infinity, in these rows of keys.
HWY_MAYBE_UNUSED void hide_rows(const View& view, int64_t group, const Range& rows, float* scores) {
  const hn::RebindToSigned<PartTag> ints;
  const Part hidden = hn::Set(PartTag(), -std::numeric_limits<float>::infinity());
  for (int64_t part = 0; part < kParts; ++part) {
    const int64_t column = group * kWide + part * kPartLanes;
    const auto first = hn::LoadU(ints, view.first + column);
    const auto end = hn::LoadU(ints, view.end + column);
    for (int64_t j = rows.begin; j < rows.end; ++j) {
      const auto key = hn::Set(ints, static_cast<int32_t>(view.key + j));
      const auto early = hn::RebindMask(PartTag(), hn::Gt(first, key));
      const auto seen = hn::RebindMask(PartTag(), hn::Gt(end, key));
      const Part score = load_part(scores + j * kTile + column);
      store_part(scores + j * kTile + column,
                 hn::IfThenElse(early, hidden, hn::IfThenElse(seen, score, hidden)));
    }
  }
}

/// Does the same in all rows of a group. Skips the rows that all queries of the group see.
HWY_MAYBE_UNUSED void hide(const View& view, int64_t group, float* scores) {
  const Range keys = view.keys_of_group(group), clear = view.clear_keys_of_group(group);
  if (clear.begin >= clear.end) return hide_rows(view, group, keys, scores);
  hide_rows(view, group, {keys.begin, clear.begin}, scores);
  hide_rows(view, group, {clear.end, keys.end}, scores);
}

/// The dropout factors of the attention weights of four keys, from `key` on, for kWide queries,
/// from `query` on. REQUIRES: key % 4 == 0.
HWY_INLINE void weight_factors(const AttentionOperands& operands, int64_t b, int64_t head,
                               int64_t query, int64_t key, float kept, float (&factors)[4][kWide]) {
  uint32_t groups[kWide];
  for (int64_t l = 0; l < kWide; ++l) {
    groups[l] = dropout_group(static_cast<uint32_t>(query + l), static_cast<uint32_t>(key),
                              static_cast<uint32_t>(operands.num_tokens));
  }
  dropout_factors(operands.dropout, static_cast<uint32_t>(b), static_cast<uint32_t>(head), groups,
                  kept, factors);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif

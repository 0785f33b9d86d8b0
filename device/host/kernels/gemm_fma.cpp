#include <algorithm>

#include "device/host/kernels/gemm_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/gemm_fma.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/gemm-inl.h"
#include "device/host/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

// Wider instruction sets have smaller numbers, also in newer versions of Highway.
#if HWY_TARGET <= HWY_AVX3
constexpr int kTileRows = 8, kTileVecs = 3;
#elif HWY_TARGET == HWY_AVX2
constexpr int kTileRows = 6, kTileVecs = 2;
#elif HWY_TARGET == HWY_SCALAR
constexpr int kTileRows = 1, kTileVecs = 16;
#else
constexpr int kTileRows = 2, kTileVecs = 4;
#endif
constexpr int64_t kTileColumns = kTileVecs * kLanes;
static_assert(24 % kTileRows == 0 && 96 % kTileColumns == 0 && kTileColumns % kWide == 0);

/// Prefetches a line, because hardware prefetching starts again with every short line. A prefetch
/// of an invalid address has no effect.
template <class T>
HWY_INLINE void prefetch(const T* from, int64_t offset) {
  hwy::Prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(from) +
                                              static_cast<uintptr_t>(offset) * sizeof(T)));
}

template <class T>
inline constexpr int64_t kCacheLine = 64 / static_cast<int64_t>(sizeof(T));

/// Packs lines whose links are contiguous in memory.
template <int64_t kWidth, class T>
HWY_INLINE void pack_along_links(float* to, const T* from, const PanelSource& p) {
  int64_t first = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr int64_t kSquare = kWidth % kLanes == 0 ? kLanes : kWidth % 8 == 0 ? 8 : 4;
  for (; first + kSquare <= p.num_lines; first += kSquare) {
    const T* lines = from + first * p.line_stride;
    int64_t j = 0;
    for (; j + kSquare <= p.num_links; j += kSquare) {
      if (j % kCacheLine<T> == 0) {
        for (int64_t i = kSquare; i < 2 * kSquare; ++i) prefetch(lines, i * p.line_stride + j);
      }
      transpose_square<kSquare>(to + j * kWidth + first, kWidth, lines + j, p.line_stride);
    }
    for (; j < p.num_links; ++j) {
      for (int64_t i = 0; i < kSquare; ++i) {
        to[j * kWidth + first + i] = static_cast<float>(lines[i * p.line_stride + j]);
      }
    }
  }
#endif
  for (int64_t i = first; i < kWidth; ++i) {
    for (int64_t j = 0; j < p.num_links; ++j) {
      to[j * kWidth + i] = i < p.num_lines ? static_cast<float>(from[i * p.line_stride + j]) : 0.0f;
    }
  }
}

/// Packs whole panels of lines that are adjacent in memory. All panels are packed together, so each
/// row of memory is read once.
template <int64_t kWidth, class T>
HWY_INLINE void pack_across_links(float* to, const T* from, const PanelSource& p,
                                  int64_t num_panels) {
  constexpr int64_t kLinksAhead = 16;
  for (int64_t j = 0; j < p.num_links; ++j) {
    const T* link = from + j * p.link_stride;
    for (int64_t i = 0; i < num_panels * kWidth; i += kCacheLine<T>) {
      prefetch(link, kLinksAhead * p.link_stride + i);
    }
    for (int64_t panel = 0; panel < num_panels; ++panel) {
      const T* lines = link + panel * kWidth;
      float* words = to + (panel * p.num_links + j) * kWidth;
      if constexpr (kWidth % kWide == 0) {
        for (int64_t i = 0; i < kWidth; i += kWide) store(words + i, load(lines + i));
      } else {
        for (int64_t i = 0; i < kWidth; ++i) words[i] = static_cast<float>(lines[i]);
      }
    }
  }
}

/// Packs adjacent lines, fewer than a panel has.
template <int64_t kWidth, class T>
HWY_INLINE void pack_few_across_links(float* to, const T* from, const PanelSource& p) {
  for (int64_t j = 0; j < p.num_links; ++j) {
    for (int64_t i = 0; i < kWidth; ++i) {
      to[j * kWidth + i] = i < p.num_lines ? static_cast<float>(from[j * p.link_stride + i]) : 0.0f;
    }
  }
}

template <int64_t kWidth>
void pack_panels(void* to, const PanelSource& from) {
  with_float_type(from.dtype, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    auto* words = static_cast<float*>(to);
    const int64_t whole = from.num_lines / kWidth * kWidth;
    if (from.link_stride != 1) {
      pack_across_links<kWidth>(words, static_cast<const T*>(from.data), from, whole / kWidth);
      if (whole == from.num_lines) return;
      const PanelSource rest = from.lines(whole, kWidth);
      pack_few_across_links<kWidth>(words + whole * from.num_links,
                                    static_cast<const T*>(rest.data), rest);
      return;
    }
    for (int64_t line = 0; line < from.num_lines; line += kWidth) {
      const PanelSource panel = from.lines(line, kWidth);
      pack_along_links<kWidth>(words + line * from.num_links, static_cast<const T*>(panel.data),
                               panel);
    }
  });
}

void multiply(int64_t num_words, const void* rows, const void* columns, float* tile, bool from_zero,
              Upcoming& upcoming) {
  micro_kernel<kTileRows, kTileVecs>(
      num_words, static_cast<const float*>(rows), static_cast<const float*>(columns), tile,
      {1, kTileRows, kTileColumns, kTileColumns}, from_zero, [&](int64_t word) {
        if (word % GemmKernel::kWordsPerFetch == 0) upcoming.fetch();
      });
}

/// Adds the bias and, for Write::Add, the old value; rounds and writes the valid part of a tile.
template <class TC, class TB>
HWY_INLINE void finish_as(const float* tile, const TileTarget& to, TC* c, const TC* old,
                          const TB* bias) {
  for (int64_t r = 0; r < to.rows; ++r) {
    for (int64_t i = 0; i < to.columns; i += kWide) {
      const int64_t at = r * to.row_stride + i;
      Wide value = load(tile + r * to.tile_stride + i);
      if (bias != nullptr) value = value + load_up_to(bias + i, to.columns - i);
      if (to.write == Write::Add) value = load_up_to(old + at, to.columns - i) + value;
      store_up_to(c + at, value, to.columns - i);
    }
  }
}

/// Writes a tile past the caches if the tile consists of whole cache lines of fp32. Otherwise
/// returns false.
bool stream_tile(const float* tile, const TileTarget& to) {
  const int64_t bytes = to.columns * static_cast<int64_t>(sizeof(float));
  const bool plain =
      to.dtype == DType::F32 && to.write == Write::Store && to.bias == nullptr && to.read_late;
  if (!plain || !is_whole_lines(to.c, bytes) || to.row_stride % 16 != 0) return false;
  for (int64_t r = 0; r < to.rows; ++r) {
    stream_lines(static_cast<float*>(to.c) + r * to.row_stride, tile + r * to.tile_stride, bytes);
  }
  return true;
}

void finish(const float* tile, const TileTarget& to) {
  if (stream_tile(tile, to)) return;
  with_float_type(to.dtype, [&](auto c_zero) HWY_ATTR {
    with_float_type(to.bias_dtype, [&](auto b_zero) HWY_ATTR {
      finish_as(tile, to, static_cast<decltype(c_zero)*>(to.c),
                static_cast<const decltype(c_zero)*>(to.old),
                static_cast<const decltype(b_zero)*>(to.bias));
    });
  });
}

const GemmKernel& kernel() {
  static constexpr GemmKernel kKernel = {.tile_rows = kTileRows,
                                         .tile_columns = kTileColumns,
                                         .links_per_word = 1,
                                         .pack_rows = pack_panels<kTileRows>,
                                         .pack_columns = pack_panels<kTileColumns>,
                                         .multiply = multiply};
  return kKernel;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(kernel);
HWY_EXPORT(finish);

const GemmKernel& fma_gemm_kernel() { return HWY_DYNAMIC_DISPATCH(kernel)(); }
void finish_tile(const float* tile, const TileTarget& to) {
  HWY_DYNAMIC_DISPATCH(finish)(tile, to);
}

}  // namespace ebb
#endif

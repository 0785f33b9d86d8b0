// This is the only file with intrinsics, because Highway 1.0.3 has no dot product of bf16. Its
// functions run only on processors with this instruction. The file defines no function that another
// file could define as well, because the linker might use this version on other processors.
#include <immintrin.h>

#include "device/errors.h"
#include "device/host/kernels/gemm_kernel.h"

#ifdef __clang__
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
#endif

namespace ebb {
namespace {

using Word = uint32_t;  // links 2 i (low) and 2 i + 1 of a line

constexpr int kTileRows = 8, kTileVecs = 3, kLanes = 16;
constexpr int64_t kTileColumns = kTileVecs * kLanes;

/// Always inline, because the compiler removes calls of a function that only prefetches.
[[gnu::always_inline]] inline void prefetch(const uint16_t* from, int64_t offset) {
  _mm_prefetch(reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(from) +
                                             static_cast<uintptr_t>(2 * offset)),
               _MM_HINT_T0);
}

/// to[w * width + i] = word w of line i, for four words of four lines.
void transpose_4x4(Word* to, int64_t width, const uint16_t* from, int64_t stride) {
  const auto line = [&](int64_t i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * stride));
  };
  const auto put = [&](int64_t w, __m128i v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + w * width), v);
  };
  const __m128i low01 = _mm_unpacklo_epi32(line(0), line(1)),
                high01 = _mm_unpackhi_epi32(line(0), line(1));
  const __m128i low23 = _mm_unpacklo_epi32(line(2), line(3)),
                high23 = _mm_unpackhi_epi32(line(2), line(3));
  put(0, _mm_unpacklo_epi64(low01, low23));
  put(1, _mm_unpackhi_epi64(low01, low23));
  put(2, _mm_unpacklo_epi64(high01, high23));
  put(3, _mm_unpackhi_epi64(high01, high23));
}

Word word_at(const uint16_t* line, int64_t link_stride, int64_t w, int64_t num_links) {
  const Word low = line[2 * w * link_stride];
  const Word high = 2 * w + 1 < num_links ? line[(2 * w + 1) * link_stride] : 0;
  return low | high << 16;
}

/// Packs lines whose links are contiguous in memory.
template <int64_t kWidth>
void pack_along_links(Word* to, const uint16_t* from, const PanelSource& p) {
  constexpr int64_t kCacheLine = 32;  // links
  const int64_t num_words = (p.num_links + 1) / 2;
  int64_t first = 0;
  for (; first + 4 <= p.num_lines; first += 4) {
    const uint16_t* lines = from + first * p.line_stride;
    int64_t w = 0;
    for (; 2 * (w + 4) <= p.num_links; w += 4) {
      if (2 * w % kCacheLine == 0) {
        for (int64_t i = 4; i < 8; ++i) prefetch(lines, i * p.line_stride + 2 * w);
      }
      transpose_4x4(to + w * kWidth + first, kWidth, lines + 2 * w, p.line_stride);
    }
    for (; w < num_words; ++w) {
      for (int64_t i = 0; i < 4; ++i) {
        to[w * kWidth + first + i] = word_at(lines + i * p.line_stride, 1, w, p.num_links);
      }
    }
  }
  for (int64_t i = first; i < kWidth; ++i) {
    for (int64_t w = 0; w < num_words; ++w) {
      to[w * kWidth + i] =
          i < p.num_lines ? word_at(from + i * p.line_stride, 1, w, p.num_links) : 0;
    }
  }
}

/// Packs lines that are adjacent in memory. Two links are two rows of memory, which are
/// interleaved.
template <int64_t kWidth>
void pack_across_links(Word* to, const uint16_t* from, const PanelSource& p) {
  constexpr int64_t kLinksAhead = 16, kStep = 8;
  static_assert(kWidth % kStep == 0);
  for (int64_t link = 0; link < p.num_links; link += 2, to += kWidth) {
    const uint16_t* low = from + link * p.link_stride;
    const bool has_high = link + 1 < p.num_links;
    prefetch(low, kLinksAhead * p.link_stride);
    prefetch(low, kLinksAhead * p.link_stride + kWidth - 1);
    prefetch(low, (kLinksAhead + 1) * p.link_stride);
    prefetch(low, (kLinksAhead + 1) * p.link_stride + kWidth - 1);
    for (int64_t i = 0; i < kWidth; i += kStep) {
      const int64_t there = p.num_lines - i;
      const auto mask = static_cast<__mmask8>(there >= kStep ? 0xff
                                              : there > 0    ? (1 << there) - 1
                                                             : 0);
      const auto mask_high = has_high ? mask : __mmask8{0};
      const __m256i l = _mm256_cvtepu16_epi32(_mm_maskz_loadu_epi16(mask, low + i));
      const __m256i h =
          _mm256_cvtepu16_epi32(_mm_maskz_loadu_epi16(mask_high, low + p.link_stride + i));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                          _mm256_or_si256(l, _mm256_slli_epi32(h, 16)));
    }
  }
}

template <int64_t kWidth>
void pack_panels(void* to, const PanelSource& from) {
  EBB_CHECK(from.dtype == DType::BF16, "the dot product needs bf16 matrices");
  for (int64_t line = 0; line < from.num_lines; line += kWidth) {
    auto* words = static_cast<Word*>(to) + line * from.num_words(2);
    const PanelSource panel = from.lines(line, kWidth);
    const auto* data = static_cast<const uint16_t*>(panel.data);
    if (from.link_stride == 1) {
      pack_along_links<kWidth>(words, data, panel);
    } else {
      pack_across_links<kWidth>(words, data, panel);
    }
  }
}

__m512bh load_pairs(const Word* p) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p)); }
__m512bh broadcast_pair(Word w) {
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(w)));
}

void multiply(int64_t num_words, const void* rows, const void* columns, float* tile, bool from_zero,
              Upcoming& upcoming) {
  const auto* a = static_cast<const Word*>(rows);
  const auto* b = static_cast<const Word*>(columns);
  __m512 sum[kTileRows][kTileVecs];
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kTileVecs; ++v) {
      sum[r][v] =
          from_zero ? _mm512_setzero_ps() : _mm512_loadu_ps(tile + r * kTileColumns + v * kLanes);
    }
  }
  for (int64_t w = 0; w < num_words; ++w, a += kTileRows, b += kTileColumns) {
    if (w % GemmKernel::kWordsPerFetch == 0) upcoming.fetch();
    __m512bh column[kTileVecs];
#pragma GCC unroll 16
    for (int v = 0; v < kTileVecs; ++v) column[v] = load_pairs(b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      const __m512bh row = broadcast_pair(a[r]);
#pragma GCC unroll 16
      for (int v = 0; v < kTileVecs; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], row, column[v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kTileVecs; ++v) {
      _mm512_storeu_ps(tile + r * kTileColumns + v * kLanes, sum[r][v]);
    }
  }
}

constexpr GemmKernel kKernel = {.tile_rows = kTileRows,
                                .tile_columns = kTileColumns,
                                .links_per_word = 2,
                                .pack_rows = pack_panels<kTileRows>,
                                .pack_columns = pack_panels<kTileColumns>,
                                .multiply = multiply};

}  // namespace

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const GemmKernel& dot_gemm_kernel() { return kKernel; }

}  // namespace ebb

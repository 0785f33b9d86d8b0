// What a matrix product is made of: how panels are packed, multiplied and written. One table for
// each arithmetic; the loops around it (gemm.cpp) are the same for all.
//
// A panel is `tile_rows` lines of A or `tile_columns` lines of B, word by word: to[w * width + i]
// is word w of line i. A word is four bytes and holds `links_per_word` links of the chain: an fp32,
// or two bf16. Lines and links that are not there are zeros. Panels follow each other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "device/dtype.h"
#include "device/kernels.h"

namespace ebb {

/// Lines of one or more panels as they lie in memory. One of the two strides (in elements) is 1.
struct PanelSource {
  const void* data;
  DType dtype;
  int64_t line_stride;
  int64_t link_stride;
  int64_t num_lines;
  int64_t num_links;

  int64_t num_words(int64_t links_per_word) const {
    return (num_links + links_per_word - 1) / links_per_word;
  }
  /// At most `count` lines from `line` on.
  PanelSource lines(int64_t line, int64_t count) const {
    PanelSource part = *this;
    part.data = static_cast<const std::byte*>(data) +
                line * line_stride * static_cast<int64_t>(size_of(dtype));
    part.num_lines = std::min(count, num_lines - line);
    return part;
  }
};

/// Memory that will be packed next. A kernel asks for it while it multiplies, a cache line now and
/// then, so that packing finds it near. It decides nothing but time.
struct Upcoming {
  const std::byte* at = nullptr;
  int64_t stride = 0, row_bytes = 0, num_rows = 0;
  int64_t done_bytes = 0;  // of the first row that is left

  Upcoming() = default;
  explicit Upcoming(const PanelSource& from) : at(static_cast<const std::byte*>(from.data)) {
    const auto size = static_cast<int64_t>(size_of(from.dtype));
    const bool along_links = from.link_stride == 1;
    stride = size * (along_links ? from.line_stride : from.link_stride);
    row_bytes = size * (along_links ? from.num_links : from.num_lines);
    num_rows = along_links ? from.num_lines : from.num_links;
  }
  void fetch() {
    if (num_rows == 0) return;
    __builtin_prefetch(at + done_bytes);
    done_bytes += 64;
    if (done_bytes < row_bytes) return;
    done_bytes = 0;
    at += stride;
    --num_rows;
  }
};

/// Where a finished tile goes.
struct TileTarget {
  void* c;
  DType dtype;
  int64_t row_stride;
  int64_t rows, columns;  ///< the part of the tile that exists
  const void* bias;       ///< of the first column, or null
  DType bias_dtype;
  Write write;
  bool read_late;
  int64_t tile_stride;  ///< from row to row of the tile
};

struct GemmKernel {
  int64_t tile_rows, tile_columns;
  int64_t links_per_word;
  void (*pack_rows)(void* to, const PanelSource& from);
  void (*pack_columns)(void* to, const PanelSource& from);
  /// tile (tile_rows, tile_columns) = the chain over `num_words`, begun at zero or continued.
  void (*multiply)(int64_t num_words, const void* rows, const void* columns, float* tile,
                   bool from_zero, Upcoming& upcoming);
  /// Of them, one for each cache line that is asked for.
  static constexpr int64_t kWordsPerFetch = 8;
};

/// Adds bias and what was there, rounds once and writes.
void finish_tile(const float* tile, const TileTarget& to);

/// Chains of fused multiply-adds, on the best instruction set here.
const GemmKernel& fma_gemm_kernel();
/// Pairs of bf16. Runs only where this_processor().has_bf16_dot.
const GemmKernel& dot_gemm_kernel();

}  // namespace ebb

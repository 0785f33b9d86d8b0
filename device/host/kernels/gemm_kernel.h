// The functions of a matrix product that pack, multiply and write panels. There is one table of
// functions for each arithmetic; all arithmetics share the loops in gemm.cpp. Thread-safe:
// functions use only their arguments.
//
// A line is a row of A or a column of B. A panel is `tile_rows` lines of A or `tile_columns` lines
// of B, word by word: to[w * width + i] is word w of line i. A word has four bytes and contains
// `links_per_word` links of the chain: one fp32, or two bf16. Missing lines and links are filled
// with zeros. Panels are consecutive in memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "device/dtype.h"
#include "device/kernel_arguments.h"

namespace ebb {

/// The lines of one or more panels before they are packed. One of the two strides (in elements) is
/// 1.
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
  /// At most `count` lines, from `line` on.
  PanelSource lines(int64_t line, int64_t count) const {
    PanelSource part = *this;
    part.data = static_cast<const std::byte*>(data) +
                line * line_stride * static_cast<int64_t>(size_of(dtype));
    part.num_lines = std::min(count, num_lines - line);
    return part;
  }
};

/// The memory that is packed next. A kernel prefetches one cache line of it from time to time while
/// it multiplies, so that the memory is in a cache when it is packed. This has no effect on
/// results.
struct Upcoming {
  const std::byte* at = nullptr;
  int64_t stride = 0, row_bytes = 0, num_rows = 0;
  int64_t done_bytes = 0;  // of the first row that is not yet prefetched

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

/// The destination of a finished tile.
struct TileTarget {
  void* c;
  const void* old;  ///< read with Write::Add, which adds this tile; rows as those of c
  DType dtype;
  int64_t row_stride;
  int64_t rows, columns;  ///< the part of the tile that is in C
  const void* bias;       ///< of the first column, or null
  DType bias_dtype;
  Write write;
  bool read_late;
  int64_t tile_stride;  ///< between rows of the tile
};

struct GemmKernel {
  int64_t tile_rows, tile_columns;
  int64_t links_per_word;
  void (*pack_rows)(void* to, const PanelSource& from);
  void (*pack_columns)(void* to, const PanelSource& from);
  /// tile (tile_rows, tile_columns) = the chain over `num_words` words, from zero or continued.
  void (*multiply)(int64_t num_words, const void* rows, const void* columns, float* tile,
                   bool from_zero, Upcoming& upcoming);
  /// The number of words after which multiply() prefetches one cache line.
  static constexpr int64_t kWordsPerFetch = 8;
};

/// Adds the bias and, for Write::Add, the old value; rounds once and writes.
void finish_tile(const float* tile, const TileTarget& to);

/// Chains of fused multiply-adds, on the best instruction set of this processor.
const GemmKernel& fma_gemm_kernel();
/// Chains of dot products of pairs of bf16. REQUIRES: this_processor().has_bf16_dot.
const GemmKernel& dot_gemm_kernel();

}  // namespace ebb

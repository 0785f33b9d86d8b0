// What a matrix product is made of: how panels are packed, multiplied and written. One table for
// each arithmetic; the loops around it (gemm.cpp) are the same for all.
//
// A panel is `tile_rows` lines of A or `tile_columns` lines of B, word by word: to[w * width + i]
// is word w of line i. A word is four bytes and holds `links_per_word` links of the chain: an fp32,
// or two bf16. Lines and links that are not there are zeros.
#pragma once

#include <cstdint>

#include "device/dtype.h"
#include "device/kernels.h"

namespace ebb {

/// Lines of a panel as they lie in memory. One of the two strides (in elements) is 1.
struct PanelSource {
  const void* data;
  DType dtype;
  int64_t line_stride;
  int64_t link_stride;
  int64_t num_lines;  ///< at most the panel's width
  int64_t num_links;
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
                   bool from_zero);
};

/// Adds bias and what was there, rounds once and writes.
void finish_tile(const float* tile, const TileTarget& to);

/// Chains of fused multiply-adds, on the best instruction set here.
const GemmKernel& fma_gemm_kernel();
/// Pairs of bf16. Runs only where this_processor().has_bf16_dot.
const GemmKernel& dot_gemm_kernel();

}  // namespace ebb

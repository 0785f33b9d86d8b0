// Sums over rows. Rows are divided into blocks whose number and size follow from the shape alone,
// and the partial sums of the blocks are added in order.
#pragma once

#include "cuda/kernels/elementwise.h"

namespace ebb::cuda {

__host__ __device__ constexpr int64_t rows_a_block(int64_t num_rows) {
  const int64_t few = (num_rows + 127) / 128;
  return few > 32 ? few : 32;
}
constexpr int64_t num_row_blocks(int64_t num_rows) {
  return ceil_div(num_rows, rows_a_block(num_rows));
}

/// An operation for launch_for_each(): `to` = or += the partial sums of all blocks.
struct BlockSums {
  float* to;
  const float* partials;
  int64_t num_blocks, stride;
  Write write;

  __device__ float value(int64_t i) const {
    float sum = 0.0f;
    for (int64_t block = 0; block < num_blocks; ++block) sum += partials[block * stride + i];
    return write == Write::Add ? to[i] + sum : sum;
  }
  __device__ void store(int64_t i, float value) const { to[i] = value; }
};

}  // namespace ebb::cuda

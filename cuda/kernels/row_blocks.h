// Sums over rows. Rows are divided into blocks whose number and size follow from the shape alone,
// and the partial sums of the blocks are added in order.
#pragma once

#include "cuda/kernels/device_code.h"

namespace ebb::cuda {

__host__ __device__ constexpr int64_t rows_a_block(int64_t num_rows) {
  const int64_t few = ceil_div(num_rows, 128);
  return few > 32 ? few : 32;
}
constexpr int64_t num_row_blocks(int64_t num_rows) {
  return ceil_div(num_rows, rows_a_block(num_rows));
}

/// Partial sums of blocks: (num_blocks, num_columns), or (num_blocks, 2, num_columns) for two sums.
struct BlockSums {
  float* first;
  float* second;  // null: there is one sum
  int64_t num_columns;
  const float* partials;
  int64_t num_blocks;
  Write write;

  __host__ __device__ int64_t num_sums() const {
    return second == nullptr ? num_columns : 2 * num_columns;
  }
};

inline constexpr int kSumWarps = 32;

/// Warp w of a block adds the partial sums w, w + 32, ... of 32 columns, and the first warp adds
/// the sums of the warps. A template, so that files that include this one share it.
template <int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp) add_block_sums(BlockSums f) {
  float* const sums = shared_memory<float>();
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + lane_index();
  const bool is_there = column < f.num_sums();
  float sum = 0.0f;
  if (is_there) {
#pragma unroll 8
    for (int64_t block = warp_index(); block < f.num_blocks; block += kWarps) {
      sum += f.partials[block * f.num_sums() + column];
    }
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (warp_index() != 0 || !is_there) return;
  for (int i = 1; i < kWarps; ++i) sum += sums[i * kWarp + lane_index()];
  float& to = column < f.num_columns ? f.first[column] : f.second[column - f.num_columns];
  to = f.write == Write::Add ? to + sum : sum;
}

/// The sums = or += the partial sums of all blocks.
inline void launch_block_sums(const char* name, cudaStream_t stream, const BlockSums& sums) {
  launch(name, stream, blocks_for(sums.num_sums(), kWarp), kSumWarps * kWarp,
         kSumWarps * kWarp * sizeof(float), add_block_sums<kSumWarps>, sums);
}

}  // namespace ebb::cuda

// A radix sort: each pass sorts by eight bits of the index and keeps the order of equal digits. A
// block sorts one tile of rows. Its place in the result follows from the number of digits in all
// tiles before, so there are no atomics and the result is always the same.
#include <utility>

#include "cuda/kernels/sort_indices.h"

namespace ebb::cuda {
namespace {

constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kSortWarps = 8;
constexpr int kRowsALane = 4;
constexpr int kRowsAWarp = kRowsALane * kWarp;
constexpr int kTile = kSortWarps * kRowsAWarp;
constexpr int kThreads = kSortWarps * kWarp;
static_assert(kThreads == kDigits, "one thread for each digit");

struct Pass {
  const int32_t* indices;
  const int32_t* rows;  // null: 0, 1, 2, ...
  int64_t n, num_indices;
  int shift;

  __device__ int32_t index(int64_t i) const {
    const int32_t index = indices[i];
    return index >= 0 && index < num_indices ? index : static_cast<int32_t>(num_indices);
  }
  __device__ int digit(int64_t i) const { return index(i) >> shift & (kDigits - 1); }
};

/// The lanes of the warp that have the same digit. -1 for lanes without a digit.
__device__ __forceinline__ unsigned lanes_with_digit(int digit) {
  unsigned lanes = __ballot_sync(kAllLanes, digit >= 0);
#pragma unroll
  for (int bit = 0; bit < kDigitBits; ++bit) {
    const bool is_set = (digit >> bit & 1) != 0;
    const unsigned set = __ballot_sync(kAllLanes, is_set);
    lanes &= is_set ? set : ~set;
  }
  return lanes;
}

/// Where a row is in its warp: rows with the same digit are counted in row order.
struct Ranks {
  int digits[kRowsALane], of[kRowsALane];

  /// Ranks the rows [first, ...) of this warp. `counts` (kDigits) has zeros before, and the warp's
  /// number of each digit afterwards.
  __device__ Ranks(const Pass& pass, int64_t first, int* counts) {
#pragma unroll
    for (int j = 0; j < kRowsALane; ++j) {
      const int64_t i = first + j * kWarp + lane_index();
      const int digit = i < pass.n ? pass.digit(i) : -1;
      const unsigned same = lanes_with_digit(digit);
      const unsigned before = same & ((1u << lane_index()) - 1);
      digits[j] = digit;
      of[j] = digit < 0 ? 0 : counts[digit] + __popc(before);
      __syncwarp();
      if (digit >= 0 && before == 0) counts[digit] += __popc(same);
      __syncwarp();
    }
  }
};

__device__ __forceinline__ int64_t first_row_of_warp() {
  return static_cast<int64_t>(blockIdx.x) * kTile + warp_index() * kRowsAWarp;
}

/// tile_counts (kDigits, tiles) = the number of each digit in each tile.
__global__ void __launch_bounds__(kThreads) count_digits(Pass pass, int32_t* tile_counts) {
  __shared__ int counts[kSortWarps][kDigits];
  const int digit = static_cast<int>(threadIdx.x);
  for (int warp = 0; warp < kSortWarps; ++warp) counts[warp][digit] = 0;
  __syncthreads();
  const Ranks ranks(pass, first_row_of_warp(), counts[warp_index()]);
  __syncthreads();
  int sum = 0;
  for (int warp = 0; warp < kSortWarps; ++warp) sum += counts[warp][digit];
  tile_counts[static_cast<int64_t>(digit) * gridDim.x + blockIdx.x] = sum;
}

/// Replaces each count by the sum of the counts before it. One block.
__global__ void __launch_bounds__(kThreads) sum_counts(int32_t* counts, int64_t n) {
  __shared__ int sums[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t a_thread = ceil_div(n, kThreads);
  const int64_t begin = thread * a_thread < n ? thread * a_thread : n;
  const int64_t end = begin + a_thread < n ? begin + a_thread : n;
  int sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += counts[i];
  sums[thread] = sum;
  for (int distance = 1; distance < kThreads; distance *= 2) {
    __syncthreads();
    const int before = thread >= distance ? sums[thread - distance] : 0;
    __syncthreads();
    sums[thread] += before;
  }
  int before = sums[thread] - sum;
  for (int64_t i = begin; i < end; ++i) {
    const int count = counts[i];
    counts[i] = before;
    before += count;
  }
}

/// `places` (kDigits, tiles): where the first row of each digit and tile goes.
__global__ void __launch_bounds__(kThreads)
    move_rows(Pass pass, const int32_t* places, int32_t* indices, int32_t* rows) {
  __shared__ int counts[kSortWarps][kDigits];
  const int digit = static_cast<int>(threadIdx.x);
  for (int warp = 0; warp < kSortWarps; ++warp) counts[warp][digit] = 0;
  __syncthreads();
  const int64_t first = first_row_of_warp();
  const Ranks ranks(pass, first, counts[warp_index()]);
  __syncthreads();
  int place = places[static_cast<int64_t>(digit) * gridDim.x + blockIdx.x];
  for (int warp = 0; warp < kSortWarps; ++warp) {
    const int count = counts[warp][digit];
    counts[warp][digit] = place;
    place += count;
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kRowsALane; ++j) {
    if (ranks.digits[j] < 0) continue;
    const int64_t i = first + j * kWarp + lane_index();
    const int64_t to = counts[warp_index()][ranks.digits[j]] + ranks.of[j];
    indices[to] = pass.index(i);
    rows[to] = pass.rows == nullptr ? static_cast<int32_t>(i) : pass.rows[i];
  }
}

/// begins[v] = the first place whose index is at least v, for v in [0, num_indices].
__global__ void __launch_bounds__(kThreads)
    find_begins(const int32_t* indices, int64_t n, int64_t num_indices, int32_t* begins) {
  const int64_t v = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (v > num_indices) return;
  int64_t low = 0, high = n;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (indices[middle] < v) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  begins[v] = static_cast<int32_t>(low);
}

}  // namespace

int64_t sort_rows_scratch(int64_t n, int64_t num_indices) {
  return 4 * n + kDigits * ceil_div(n, kTile) + num_indices + 1;
}

SortedRows sort_rows(cudaStream_t stream, const int32_t* indices, int64_t n, int64_t num_indices,
                     int32_t* scratch) {
  const dim3 tiles = blocks_for(n, kTile);
  const int64_t num_counts = kDigits * ceil_div(n, kTile);
  int32_t* const counts = scratch + 4 * n;
  int32_t* const begins = counts + num_counts;
  Pass pass{indices, nullptr, n, num_indices, 0};
  int32_t *to = scratch, *other = scratch + 2 * n;
  do {
    launch("count_digits", stream, tiles, kThreads, 0, count_digits, pass, counts);
    launch("sum_counts", stream, dim3(1), kThreads, 0, sum_counts, counts, num_counts);
    launch("move_rows", stream, tiles, kThreads, 0, move_rows, pass, counts, to, to + n);
    pass.indices = to;
    pass.rows = to + n;
    pass.shift += kDigitBits;
    std::swap(to, other);
  } while (num_indices >> pass.shift != 0);
  launch("find_begins", stream, blocks_for(num_indices + 1, kThreads), kThreads, 0, find_begins,
         pass.indices, n, num_indices, begins);
  return {pass.indices, pass.rows, begins, n, num_indices};
}

}  // namespace ebb::cuda

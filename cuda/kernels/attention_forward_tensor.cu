// The scores of a warp's sixteen queries stay in registers and become the left factor of the
// product with the values. Each softmax weight is split into three bf16, so that the result is that
// of fp32 weights. With two parts, the result sometimes exceeds the tolerance of the tests, which
// is that of the host's kernels. With one part, the relative error of a weight is 2^-9.
#include <limits>

#include "cuda/kernels/attention_tensor.h"

namespace ebb::cuda {
namespace {

constexpr int kKeys = 64;
constexpr int kWeightParts = 3;

template <int kHead>
struct Shared {
  BF16Rows<kHead> queries, keys;
  SummedRows<kHead> values;
  int* key_starts;

  __device__ Shared() {
    BF16* next = shared_memory<BF16>();
    queries = {next};
    keys = {next + BF16Rows<kHead>::count(kTensorRows)};
    values = {{keys.at + BF16Rows<kHead>::count(kKeys)}};
    key_starts = reinterpret_cast<int*>(values.rows.at + BF16Rows<kHead>::count(kKeys));
  }
  static constexpr size_t bytes() {
    return static_cast<size_t>(BF16Rows<kHead>::count(kTensorRows + 2 * kKeys)) * sizeof(BF16) +
           kKeys * sizeof(int);
  }
};

/// The softmax statistics and the sums of a lane's two rows.
template <int kHead>
struct Rows {
  float o[kHead / 8][4] = {};
  float top[2] = {-std::numeric_limits<float>::max(), -std::numeric_limits<float>::max()};
  float sum[2] = {};

  /// Replaces scores by weights, relative to the highest score so far.
  __device__ void weigh(float (&s)[kKeys / 8][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float highest = top[half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        highest = fmaxf(highest, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
      }
      highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, 2));
      float total = 0.0f;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          s[n][e] = expf(s[n][e] - highest);
          total += s[n][e];
        }
      }
      total += __shfl_xor_sync(kAllLanes, total, 1);
      total += __shfl_xor_sync(kAllLanes, total, 2);
      const float factor = expf(top[half] - highest);
      sum[half] = fmaf(sum[half], factor, total);
      top[half] = highest;
#pragma unroll
      for (int n = 0; n < kHead / 8; ++n) {
        o[n][2 * half] *= factor;
        o[n][2 * half + 1] *= factor;
      }
    }
  }

  /// o += weights times values.
  __device__ void add_values(const float (&weights)[kKeys / 8][4],
                             const SummedRows<kHead>& values) {
    add_product<kWeightParts, kKeys, kHead>(o, weights, values);
  }
};

template <int kHead>
__global__ void __launch_bounds__(kTensorThreads, kTensorBlocks<kHead>)
    attend(AttentionOperands f, bool wide) {
  const Head<BF16> head(f, blockIdx.y);
  const Shared<kHead> shared;
  const int n = head.num_tokens(), size = head.size();
  // The last queries see the most keys, so they are computed first.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTensorRows;
  const int last = first + kTensorRows <= n ? first + kTensorRows - 1 : n - 1;
  const int row = warp_index() * kWarpRows;
  int start[2];
  for (int half = 0; half < 2; ++half) {
    const int query = first + row + lane_row() + half * 8;
    start[half] = query < n ? head.start(query) : -1;
  }
  load_tile<kTensorRows, kHead, true, false>(
      shared.queries, {}, {head.part(0), head.qkv_stride(), first, n, size, wide});
  Rows<kHead> rows;
  for (int key = head.first_key(first) / kKeys * kKeys; key < n; key += kKeys) {
    if (head.is_past_keys(last, key)) break;
    __syncthreads();
    load_tile<kKeys, kHead, true, false>(shared.keys, {},
                                         {head.part(1), head.qkv_stride(), key, n, size, wide});
    load_tile<kKeys, kHead, true, false>(shared.values.rows, {},
                                         {head.part(2), head.qkv_stride(), key, n, size, wide});
    for (int i = static_cast<int>(threadIdx.x); i < kKeys; i += kTensorThreads) {
      shared.key_starts[i] = key + i < n ? head.start(key + i) : -2;
    }
    __syncthreads();
    float s[kKeys / 8][4];
    multiply_heads<true, kKeys>(s, shared.queries, row, shared.keys);
    // Unrolled, here and below: an array that is indexed at run time would be in local memory.
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) {
      for (int e = 0; e < 4; ++e) {
        const int column = i * 8 + lane_column() + e % 2;
        const int query = first + row + lane_row() + e / 2 * 8;
        const bool seen = head.sees(query, start[e / 2], key + column, shared.key_starts[column]);
        s[i][e] = seen ? s[i][e] * f.scale : -std::numeric_limits<float>::infinity();
      }
    }
    rows.weigh(s);
    if (f.dropout.probability > 0.0f) {
#pragma unroll
      for (int i = 0; i < kKeys / 8; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          s[i][e] *=
              head.kept(first + row + lane_row() + e / 2 * 8, key + i * 8 + lane_column() + e % 2);
        }
      }
    }
    rows.add_values(s, shared.values);
  }
  float factor[2];
  for (int half = 0; half < 2; ++half) {
    const int query = first + row + lane_row() + half * 8;
    factor[half] = 1.0f / rows.sum[half];
    if (query < n && lane_column() == 0) {
      head.log_sum_exp()[query] = rows.top[half] + logf(rows.sum[half]);
    }
  }
  store_tile<kHead>(head.out(), head.out_stride(), first + row, n, size, rows.o, factor);
}

template <int kHead>
void launch_forward(cudaStream_t stream, const AttentionOperands& f) {
  launch("attention_forward", stream, attention_grid(f, kTensorRows, f.num_heads), kTensorThreads,
         Shared<kHead>::bytes(), attend<kHead>, f, rows_are_wide(f));
}

}  // namespace

void attention_forward_tensor(cudaStream_t stream, const AttentionOperands& f) {
  with_padded_head(f, [&](auto head) { launch_forward<head()>(stream, f); });
}

}  // namespace ebb::cuda

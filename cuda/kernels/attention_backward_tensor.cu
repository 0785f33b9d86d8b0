// There are two kernels. In one, each block owns keys, and computes the gradients of keys and
// values. In the other, each block owns queries. As factors of products, softmax weights are
// rounded to one bf16. Gradients of scores have both signs and can cancel, so each is split into
// two bf16.
#include "cuda/kernels/attention_tensor.h"

namespace ebb::cuda {
namespace {

constexpr int kOthers = 32;     // queries or keys of the other side that a block loads at a time
constexpr int kScoreParts = 2;  // number of bf16 into which a gradient of a score is split

/// Shared memory: the rows that a block owns (queries and dout, or keys and values), and the rows
/// of the other side.
template <int kHead>
struct Shared {
  BF16Rows<kHead> own_a, own_b;
  ExchangedRows<kOthers, kHead> other_a, other_b;
  float *log_sums, *inners;  // of queries
  int* starts;               // of the other side

  __device__ Shared() {
    own_a = {shared_memory<BF16>()};
    own_b = {own_a.at + BF16Rows<kHead>::count(kTensorRows)};
    other_a.rows = {own_b.at + BF16Rows<kHead>::count(kTensorRows)};
    other_b.rows = {other_a.rows.at + BF16Rows<kHead>::count(kOthers)};
    other_a.exchanged = {other_b.rows.at + BF16Rows<kHead>::count(kOthers)};
    other_b.exchanged = {other_a.exchanged.at + BF16Rows<kOthers>::count(kHead)};
    log_sums = reinterpret_cast<float*>(other_b.exchanged.at + BF16Rows<kOthers>::count(kHead));
    inners = log_sums + kOthers;
    starts = reinterpret_cast<int*>(inners + kOthers);
  }
  static constexpr size_t bytes() {
    return static_cast<size_t>(2 * BF16Rows<kHead>::count(kTensorRows + kOthers) +
                               2 * BF16Rows<kOthers>::count(kHead)) *
               sizeof(BF16) +
           kOthers * (2 * sizeof(float) + sizeof(int));
  }
};

/// For one score: its softmax weight, and its gradient without the factor `scale`.
struct ScoreGradient {
  float weight = 0.0f, dscore = 0.0f;
};
__device__ __forceinline__ ScoreGradient differentiate(bool seen, float score, float dweight,
                                                       float log_sum, float inner, float kept) {
  if (!seen) return {};
  const float weight = expf(score - log_sum);
  return {weight * kept, weight * (dweight * kept - inner)};
}

/// Loads a tile of queries of one head, their statistics, and their dout.
template <int kHead>
__device__ void load_queries(const Head<BF16>& head, const Shared<kHead>& shared, int query,
                             bool wide) {
  const int n = head.num_tokens(), size = head.size();
  load_tile<kOthers, kHead, true, true>(shared.other_a.rows, shared.other_a.exchanged,
                                        {head.part(0), head.qkv_stride(), query, n, size, wide});
  load_tile<kOthers, kHead, true, true>(shared.other_b.rows, shared.other_b.exchanged,
                                        {head.dout(), head.out_stride(), query, n, size, wide});
  if (threadIdx.x >= kOthers) return;
  const int i = static_cast<int>(threadIdx.x);
  const bool is_there = query + i < n;
  shared.log_sums[i] = is_there ? head.log_sum_exp()[query + i] : 0.0f;
  shared.inners[i] = is_there ? head.inner()[query + i] : 0.0f;
  shared.starts[i] = is_there ? head.start(query + i) : -2;
}

/// Adds the contributions of all heads of queries that read these keys, one after the other.
template <int kHead>
__global__ void __launch_bounds__(kTensorThreads, kTensorBlocks<kHead>)
    differentiate_keys(AttentionOperands f, bool wide) {
  const int group = static_cast<int>(f.num_heads / f.num_kv_heads);
  const int first_head = static_cast<int>(blockIdx.y) * group;
  const Head<BF16> keys(f, first_head);
  const Shared<kHead> shared;
  const int n = keys.num_tokens(), size = keys.size();
  const int first = static_cast<int>(blockIdx.x) * kTensorRows;
  const int last = first + kTensorRows <= n ? first + kTensorRows - 1 : n - 1;
  const int row = warp_index() * kWarpRows;
  int start[2];
  for (int half = 0; half < 2; ++half) {
    const int key = first + row + lane_row() + half * 8;
    start[half] = key < n ? keys.start(key) : -1;
  }
  load_tile<kTensorRows, kHead, true, false>(
      shared.own_a, {}, {keys.part(1), keys.qkv_stride(), first, n, size, wide});
  load_tile<kTensorRows, kHead, true, false>(
      shared.own_b, {}, {keys.part(2), keys.qkv_stride(), first, n, size, wide});
  float dk[kHead / 8][4] = {}, dv[kHead / 8][4] = {};
  const int first_query = f.causal ? first : keys.start(first);
  for (int h = first_head; h < first_head + group; ++h) {
    const Head<BF16> head(f, h);
    for (int query = first_query / kOthers * kOthers; query < n; query += kOthers) {
      if (head.is_past_queries(last, query)) break;
      __syncthreads();
      load_queries(head, shared, query, wide);
      __syncthreads();
      float s[kOthers / 8][4], ds[kOthers / 8][4];
      multiply_heads<false, kOthers>(s, shared.own_a, row, shared.other_a.rows);
      multiply_heads<false, kOthers>(ds, shared.own_b, row, shared.other_b.rows);
#pragma unroll
      for (int i = 0; i < kOthers / 8; ++i) {
        for (int e = 0; e < 4; ++e) {
          const int q = i * 8 + lane_column() + e % 2, key = first + row + lane_row() + e / 2 * 8;
          const bool seen = head.sees(query + q, shared.starts[q], key, start[e / 2]);
          const ScoreGradient g =
              differentiate(seen, s[i][e] * f.scale, ds[i][e], shared.log_sums[q], shared.inners[q],
                            head.kept(query + q, key));
          s[i][e] = g.weight;
          ds[i][e] = g.dscore;
        }
      }
      add_product<kScoreParts, kOthers, kHead>(dk, ds, shared.other_a);
      add_product<1, kOthers, kHead>(dv, s, shared.other_b);
    }
  }
  store_tile<kHead>(keys.gradient(1), keys.qkv_stride(), first + row, n, size, dk,
                    {f.scale, f.scale});
  store_tile<kHead>(keys.gradient(2), keys.qkv_stride(), first + row, n, size, dv, {1.0f, 1.0f});
}

template <int kHead>
__global__ void __launch_bounds__(kTensorThreads, kTensorBlocks<kHead>)
    differentiate_queries(AttentionOperands f, bool wide) {
  const Head<BF16> head(f, blockIdx.y);
  const Shared<kHead> shared;
  const int n = head.num_tokens(), size = head.size();
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTensorRows;
  const int last = first + kTensorRows <= n ? first + kTensorRows - 1 : n - 1;
  const int row = warp_index() * kWarpRows;
  int start[2];
  float log_sum[2], inner[2];
  for (int half = 0; half < 2; ++half) {
    const int query = first + row + lane_row() + half * 8;
    start[half] = query < n ? head.start(query) : -1;
    log_sum[half] = query < n ? head.log_sum_exp()[query] : 0.0f;
    inner[half] = query < n ? head.inner()[query] : 0.0f;
  }
  load_tile<kTensorRows, kHead, true, false>(
      shared.own_a, {}, {head.part(0), head.qkv_stride(), first, n, size, wide});
  load_tile<kTensorRows, kHead, true, false>(
      shared.own_b, {}, {head.dout(), head.out_stride(), first, n, size, wide});
  float dq[kHead / 8][4] = {};
  for (int key = head.first_key(first) / kOthers * kOthers; key < n; key += kOthers) {
    if (head.is_past_keys(last, key)) break;
    __syncthreads();
    load_tile<kOthers, kHead, true, true>(shared.other_a.rows, shared.other_a.exchanged,
                                          {head.part(1), head.qkv_stride(), key, n, size, wide});
    load_tile<kOthers, kHead, true, false>(shared.other_b.rows, {},
                                           {head.part(2), head.qkv_stride(), key, n, size, wide});
    if (threadIdx.x < kOthers) {
      const int i = static_cast<int>(threadIdx.x);
      shared.starts[i] = key + i < n ? head.start(key + i) : -2;
    }
    __syncthreads();
    float s[kOthers / 8][4], ds[kOthers / 8][4];
    multiply_heads<false, kOthers>(s, shared.own_a, row, shared.other_a.rows);
    multiply_heads<false, kOthers>(ds, shared.own_b, row, shared.other_b.rows);
#pragma unroll
    for (int i = 0; i < kOthers / 8; ++i) {
      for (int e = 0; e < 4; ++e) {
        const int k = i * 8 + lane_column() + e % 2, query = first + row + lane_row() + e / 2 * 8;
        const bool seen = head.sees(query, start[e / 2], key + k, shared.starts[k]);
        ds[i][e] = differentiate(seen, s[i][e] * f.scale, ds[i][e], log_sum[e / 2], inner[e / 2],
                                 head.kept(query, key + k))
                       .dscore;
      }
    }
    add_product<kScoreParts, kOthers, kHead>(dq, ds, shared.other_a);
  }
  store_tile<kHead>(head.gradient(0), head.qkv_stride(), first + row, n, size, dq,
                    {f.scale, f.scale});
}

template <int kHead>
void launch_backward(cudaStream_t stream, const AttentionOperands& f) {
  const auto launch_one = [&](int64_t num_heads, auto kernel) {
    launch("attention_backward", stream, attention_grid(f, kTensorRows, num_heads), kTensorThreads,
           Shared<kHead>::bytes(), kernel, f, rows_are_wide(f));
  };
  launch_one(f.num_kv_heads, differentiate_keys<kHead>);
  launch_one(f.num_heads, differentiate_queries<kHead>);
}

}  // namespace

void attention_backward_tensor(cudaStream_t stream, const AttentionOperands& f) {
  with_padded_head(f, [&](auto head) { launch_backward<head()>(stream, f); });
}

}  // namespace ebb::cuda

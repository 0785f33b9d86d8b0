// Shared code of the attention kernels: the addresses of a head's rows, and which keys a query
// sees.
//
// Both kinds of kernels read the keys in ascending order, one tile at a time. One block owns each
// output row. Scores of all queries and keys are never stored. Softmax statistics and all sums are
// fp32. The backward computes the scores twice, once for the gradients of keys and values and once
// for those of queries, so that each sum has one owner.
#pragma once

#include "cuda/kernels/device_code.h"
#include "cuda/kernels/dropout.h"
#include "cuda/kernels/gpu_launch.h"

namespace ebb::cuda {

/// One head of queries of one row of the batch, and the head of keys and values that it reads.
template <class T>
struct Head {
  const AttentionOperands& f;
  int64_t b, head;

  __device__ Head(const AttentionOperands& operands, int64_t index)
      : f(operands), b(blockIdx.z), head(index) {}

  __device__ int num_tokens() const { return static_cast<int>(f.num_tokens); }
  __device__ int size() const { return static_cast<int>(f.head_size); }
  /// The first token's channels. `index`: 0 queries, 1 keys, 2 values.
  __device__ const T* part(int index) const {
    return static_cast<const T*>(f.qkv) + first(index, qkv_stride());
  }
  __device__ T* gradient(int index) const {
    return static_cast<T*>(f.dqkv) + first(index, qkv_stride());
  }
  __device__ T* out() const { return static_cast<T*>(f.out) + first(0, out_stride()); }
  __device__ const T* dout() const {
    return static_cast<const T*>(f.dout) + first(0, out_stride());
  }
  /// Strides from one token to the next, in elements.
  __device__ int64_t qkv_stride() const { return (f.num_heads + 2 * f.num_kv_heads) * f.head_size; }
  __device__ int64_t out_stride() const { return f.num_heads * f.head_size; }
  __device__ float* log_sum_exp() const { return f.log_sum_exp + statistics(); }
  __device__ float* inner() const { return f.inner + statistics(); }

  /// The token with which the document of token i starts. An invalid start is clamped to the row.
  __device__ int start(int i) const {
    if (f.document_starts == nullptr) return 0;
    const int s = f.document_starts[b * f.num_tokens + i];
    return s < 0 ? 0 : (s > i ? i : s);
  }
  /// Does a query see a key? REQUIRES: both are inside the row.
  __device__ bool sees(int query, int query_start, int key, int key_start) const {
    if (query_start != key_start) return false;
    return !f.causal || (key <= query && (f.window == 0 || query - key < f.window));
  }
  /// The factor of dropout for the weight of a key: 0, or the scale of kept weights.
  __device__ float kept(int query, int key) const {
    if (f.dropout.probability == 0.0f) return 1.0f;
    const uint32_t group = dropout_group(static_cast<uint32_t>(query), static_cast<uint32_t>(key),
                                         static_cast<uint32_t>(f.num_tokens));
    const bool dropped =
        is_dropped(f.dropout, static_cast<uint32_t>(b), static_cast<uint32_t>(head), group,
                   static_cast<uint32_t>(key) % 4);
    return dropped ? 0.0f : f.kept_factor;
  }
  /// The first key that a query sees.
  __device__ int first_key(int query) const {
    const int from = f.window == 0 ? 0 : query - static_cast<int>(f.window) + 1;
    const int document = start(query);
    return from > document ? from : document;
  }
  /// Do queries [query, last_query] see neither this key nor any after it?
  __device__ bool is_past_keys(int last_query, int key) const {
    return f.causal ? key > last_query : start(key) > start(last_query);
  }
  /// Does neither this query nor any after it see a key of [.., last_key]?
  __device__ bool is_past_queries(int last_key, int query) const {
    if (query <= last_key) return false;
    return start(query) > start(last_key) || (f.window > 0 && query - last_key >= f.window);
  }

 private:
  __device__ int64_t first(int index, int64_t stride) const {
    const int64_t kv_head =
        f.num_heads + (index - 1) * f.num_kv_heads + head / (f.num_heads / f.num_kv_heads);
    return b * f.num_tokens * stride + (index == 0 ? head : kv_head) * f.head_size;
  }
  __device__ int64_t statistics() const { return (b * f.num_heads + head) * f.num_tokens; }
};

inline dim3 attention_grid(const AttentionOperands& f, int64_t tile, int64_t num_heads) {
  dim3 grid = blocks_for(f.num_tokens, tile);
  grid.y = static_cast<unsigned>(num_heads);
  grid.z = static_cast<unsigned>(f.batch);
  return grid;
}

// For fp32, and for heads that are too large for the tensor-core kernels.
void attention_forward_plain(cudaStream_t stream, const AttentionOperands& f);
void attention_backward_plain(cudaStream_t stream, const AttentionOperands& f);

// For bf16, with tensor cores.
inline constexpr int64_t kLargestTensorHead = 128;
void attention_forward_tensor(cudaStream_t stream, const AttentionOperands& f);
void attention_backward_tensor(cudaStream_t stream, const AttentionOperands& f);

}  // namespace ebb::cuda

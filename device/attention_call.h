// One call of attention, described once for every backend: its sizes, its operands, and where the
// columns of each head are.
//
// Pure functions. Throw LogicError where shapes or types are not those of device/kernels.h.
#pragma once

#include <cstdint>

#include "device/kernels.h"
#include "device/stream.h"

namespace ebb {

struct AttentionOperands {
  DType dtype = DType::F32;
  int64_t batch = 0, num_tokens = 0, num_heads = 0, num_kv_heads = 0, head_size = 0;
  bool causal = true;
  int64_t window = 0;  // 0: all
  float scale = 1;
  Dropout dropout = {};
  const int32_t* document_starts = nullptr;  // (batch, num_tokens) or null
  const void* qkv = nullptr;
  void* out = nullptr;           // read by backward
  float* log_sum_exp = nullptr;  // null: not asked for
  void* cache = nullptr;         // (batch, capacity, 2 NKV D): keys and values; null: those of qkv
  int64_t capacity = 0;
  const int32_t* positions = nullptr;  // with a cache: (batch, num_tokens)
  const void* dout = nullptr;          // backward only
  void* dqkv = nullptr;                // backward only

  int64_t channels() const { return num_heads * head_size; }
  int64_t qkv_columns() const { return (num_heads + 2 * num_kv_heads) * head_size; }
  /// Query heads that share one of keys and values.
  int64_t group_size() const { return num_heads / num_kv_heads; }
  /// The first column of qkv with queries (part 0), keys (1) or values (2) for a query head.
  int64_t column_of(int64_t part, int64_t head) const {
    const int64_t kv_head = num_heads + (part - 1) * num_kv_heads + head / group_size();
    return (part == 0 ? head : kv_head) * head_size;
  }
  // Where keys and values lie: in rows of qkv, or of the cache.
  const void* keys() const { return cache != nullptr ? cache : qkv; }
  int64_t key_columns() const {
    return cache != nullptr ? 2 * num_kv_heads * head_size : qkv_columns();
  }
  int64_t key_column_of(int64_t part, int64_t head) const {
    return column_of(part, head) - (cache != nullptr ? channels() : 0);
  }
  int64_t key_rows() const { return cache != nullptr ? capacity : num_tokens; }
  /// That a row of the batch has so far.
  int64_t num_keys(int64_t b) const {
    return cache != nullptr ? positions[(b + 1) * num_tokens - 1] + 1 : num_tokens;
  }
  /// Multiply-adds of the visible half of scores, for one of the tile products.
  double product_flops() const;
};

/// Checks the tensors both directions share and describes them.
AttentionOperands describe_attention(const Tensor& qkv, const Tensor& out,
                                     const Tensor& log_sum_exp, const AttentionShape& shape);

/// What the two directions ask of their tensors and cost on any device.
Cost check_attention_forward(const Tensor& out, const Tensor& log_sum_exp, const Tensor& qkv,
                             const AttentionShape& shape, AttentionOperands* operands);
Cost check_attention_cached(const Tensor& out, const Tensor& qkv, const Tensor& cache,
                            const Tensor& positions, const AttentionShape& shape,
                            AttentionOperands* operands);
Cost check_attention_backward(const Tensor& dqkv, const Tensor& dout, const Tensor& qkv,
                              const Tensor& out, const Tensor& log_sum_exp,
                              const AttentionShape& shape, AttentionOperands* operands);

}  // namespace ebb

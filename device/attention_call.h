// Describes one call of attention for all backends: its sizes, its operands, and the positions of
// the columns of each head.
//
// Pure functions. They throw LogicError if shapes or types are not those of device/kernels.h.
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
  float* log_sum_exp = nullptr;  // null: not requested
  void* cache = nullptr;         // (batch, capacity, 2 NKV D): keys and values; null: those of qkv
  int64_t capacity = 0;
  const int32_t* positions = nullptr;  // with a cache: (batch, num_tokens)
  const void* dout = nullptr;          // backward only
  void* dqkv = nullptr;                // backward only

  int64_t channels() const { return num_heads * head_size; }
  int64_t qkv_columns() const { return (num_heads + 2 * num_kv_heads) * head_size; }
  /// The number of query heads that share one head of keys and values.
  int64_t group_size() const { return num_heads / num_kv_heads; }
  /// The first column of qkv that holds the queries (part 0), keys (1) or values (2) of a query
  /// head.
  int64_t column_of(int64_t part, int64_t head) const {
    const int64_t kv_head = num_heads + (part - 1) * num_kv_heads + head / group_size();
    return (part == 0 ? head : kv_head) * head_size;
  }
  // Keys and values are in rows of qkv, or in rows of the cache if there is one.
  const void* keys() const { return cache != nullptr ? cache : qkv; }
  int64_t key_columns() const {
    return cache != nullptr ? 2 * num_kv_heads * head_size : qkv_columns();
  }
  int64_t key_column_of(int64_t part, int64_t head) const {
    return column_of(part, head) - (cache != nullptr ? channels() : 0);
  }
  int64_t key_rows() const { return cache != nullptr ? capacity : num_tokens; }
  /// The number of keys that row b of the batch has so far.
  int64_t num_keys(int64_t b) const {
    return cache != nullptr ? positions[(b + 1) * num_tokens - 1] + 1 : num_tokens;
  }
  /// The floating-point operations of one matrix product over the visible scores.
  double product_flops() const;
};

/// Checks the tensors that forward and backward share, and returns their description.
AttentionOperands describe_attention(const Tensor& qkv, const Tensor& out,
                                     const Tensor& log_sum_exp, const AttentionShape& shape);

/// Check all tensors of a forward or backward, fill in `operands`, and return the cost of the call,
/// which is the same on every device.
Cost check_attention_forward(const Tensor& out, const Tensor& log_sum_exp, const Tensor& qkv,
                             const AttentionShape& shape, AttentionOperands* operands);
Cost check_attention_cached(const Tensor& out, const Tensor& qkv, const Tensor& cache,
                            const Tensor& positions, const AttentionShape& shape,
                            AttentionOperands* operands);
Cost check_attention_backward(const Tensor& dqkv, const Tensor& dout, const Tensor& qkv,
                              const Tensor& out, const Tensor& log_sum_exp,
                              const AttentionShape& shape, AttentionOperands* operands);

}  // namespace ebb

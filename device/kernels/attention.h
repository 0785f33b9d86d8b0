// The kernels of attention (device/kernels.h), and their operands in the form that both kinds of
// devices use.
#pragma once

#include "device/kernels/launch.h"

namespace ebb {

/// The sizes and the operands of one attention kernel, and the columns of each head.
struct AttentionOperands {
  DType dtype = DType::F32;
  int64_t batch = 0, num_tokens = 0, num_heads = 0, num_kv_heads = 0, head_size = 0;
  bool causal = true;
  int64_t window = 0;  // 0: all
  float scale = 1;
  Dropout dropout = {};
  float kept_factor = 1;  // dropout.kept_factor(), computed once and not for each element
  const int32_t* document_starts = nullptr;  // (batch, num_tokens) or null
  const void* qkv = nullptr;
  void* out = nullptr;           // read by backward
  float* log_sum_exp = nullptr;  // null: not requested
  void* cache = nullptr;         // (batch, capacity, 2 NKV D): keys and values; null: those of qkv
  int64_t capacity = 0;
  const int32_t* positions = nullptr;  // with a cache: (batch, num_tokens)
  const void* dout = nullptr;          // backward only
  void* dqkv = nullptr;                // backward only
  // A GPU's backward: scratch memory (batch, heads, tokens) for the sums of dout times out.
  float* inner = nullptr;

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

/// out (B, T, NH D), log_sum_exp (B, NH, T) fp32 of qkv (B, T, (NH + 2 NKV) D): queries, keys,
/// values next to each other, each with its heads. Never stores T x T scores for all heads.
struct AttentionForward {
  Tensor out, log_sum_exp, qkv;
  AttentionShape shape = {};

  /// As check(), throws LogicError if a tensor does not match.
  AttentionOperands operands() const;
  Cost check() const;
  size_t workspace_bytes(const HostLaunch& host) const;
  size_t workspace_bytes(const GpuLaunch& gpu) const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// Causal attention of new tokens only. Keys and values of qkv are first written to the cache (B,
/// S, 2 NKV D), in which rows are positions. Then each query reads the cache at all positions up to
/// its own. positions (B, T) int32 are consecutive in a row and below S. Documents and dropout are
/// not supported.
struct AttentionCached {
  Tensor out, qkv, cache, positions;
  AttentionShape shape = {};

  AttentionOperands operands() const;
  /// The number of cached tokens is known only when the kernel runs, so the cost is that of a full
  /// cache.
  Cost check() const;
  size_t workspace_bytes(const HostLaunch& host) const;
  size_t workspace_bytes(const GpuLaunch& gpu) const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// dqkv = the gradient of qkv, from dout, which is like out. out and log_sum_exp are those of the
/// forward, and `shape` is the same.
struct AttentionBackward {
  Tensor dqkv, dout, qkv, out, log_sum_exp;
  AttentionShape shape = {};

  AttentionOperands operands() const;
  Cost check() const;
  size_t workspace_bytes(const HostLaunch& host) const;
  size_t workspace_bytes(const GpuLaunch& gpu) const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

}  // namespace ebb

#include "device/kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "device/kernels/checks.h"

namespace ebb {
namespace {

/// Checks the tensors that all three kernels have.
AttentionOperands describe_attention(const Tensor& qkv, const Tensor& out,
                                     const Tensor& log_sum_exp, const AttentionShape& shape) {
  EBB_CHECK_TENSORS(qkv.shape.rank() == 3 && out.shape.rank() == 3,
                    "attention: qkv (B, T, (NH + 2 NKV) D), out (B, T, NH D)", qkv, out);
  EBB_CHECK_TENSORS(is_float(qkv.dtype) && out.dtype == qkv.dtype,
                    "attention: qkv and out must be of one float type", qkv, out);
  const int64_t batch = out.dim(0), num_tokens = out.dim(1);
  const int64_t heads = shape.num_heads, kv_heads = shape.kv_heads();
  const auto counts = [&] {
    return std::to_string(heads) + " heads of queries, " + std::to_string(kv_heads) + " of keys";
  };
  EBB_CHECK_TENSORS(heads > 0 && out.dim(2) % heads == 0,
                    "attention: the number of heads divides the channels; " + counts(), out);
  EBB_CHECK_SHAPES(kv_heads > 0 && heads % kv_heads == 0,
                   "attention: the heads of keys divide those of queries, not " + counts());
  const int64_t head_size = out.dim(2) / heads;
  EBB_CHECK_TENSORS(qkv.dim(0) == batch && qkv.dim(1) == num_tokens &&
                        qkv.dim(2) == (heads + 2 * kv_heads) * head_size,
                    "attention: qkv (B, T, (NH + 2 NKV) D) and out (B, T, NH D) with " + counts(),
                    qkv, out);
  EBB_CHECK_TENSORS(!log_sum_exp || is_vector(log_sum_exp, DType::F32, batch * heads * num_tokens),
                    "attention: log_sum_exp (B, NH, T) fp32", log_sum_exp, out);
  EBB_CHECK(shape.window >= 0 && (shape.window == 0 || shape.causal),
            "attention: a window looks back, so attention must be causal");
  const Tensor& starts = shape.document_starts;
  EBB_CHECK_TENSORS(!starts || is_vector(starts, DType::I32, batch * num_tokens),
                    "attention: document_starts (B, T) int32", starts, out);
  EBB_CHECK(!shape.dropout || (shape.dropout.probability < 1 && heads < (1 << 16) &&
                               num_tokens <= kMostDropoutTokens),
            "attention: dropout of a probability below 1, of up to 65535 heads and 131072 tokens");
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_size));
  return {.dtype = qkv.dtype,
          .batch = batch,
          .num_tokens = num_tokens,
          .num_heads = heads,
          .num_kv_heads = kv_heads,
          .head_size = head_size,
          .causal = shape.causal,
          .window = shape.window,
          .scale = shape.scale == 0 ? scale : shape.scale,
          .dropout = shape.dropout,
          .kept_factor = shape.dropout.kept_factor(),
          .document_starts = starts ? starts.as<int32_t>() : nullptr,
          .qkv = qkv.data,
          .out = out.data,
          .log_sum_exp = log_sum_exp ? log_sum_exp.as<float>() : nullptr};
}

}  // namespace

double AttentionOperands::product_flops() const {
  const auto n = static_cast<double>(num_tokens);
  const auto seen = static_cast<double>(window > 0 ? std::min(window, num_tokens) : num_tokens);
  const double pairs = causal ? n * seen - 0.5 * seen * seen : n * n;
  return 2.0 * static_cast<double>(batch * channels()) * pairs;
}

AttentionOperands AttentionForward::operands() const {
  EBB_CHECK(log_sum_exp, "attention: log_sum_exp (B, NH, T) fp32");
  return describe_attention(qkv, out, log_sum_exp, shape);
}

Cost AttentionForward::check() const {
  const double flops = 2.0 * operands().product_flops();
  return {.flops = flops,
          .attention_flops = flops,
          .bytes = total_bytes(out, log_sum_exp, qkv, shape.document_starts),
          .name = "attention_forward"};
}

AttentionOperands AttentionCached::operands() const {
  AttentionOperands operands = describe_attention(qkv, out, {}, shape);
  EBB_CHECK(!shape.dropout, "attention_cached: no dropout");
  const int64_t columns = 2 * operands.num_kv_heads * operands.head_size;
  EBB_CHECK_TENSORS(cache && cache.shape.rank() == 3 && cache.dtype == qkv.dtype &&
                        cache.dim(0) == operands.batch && cache.dim(2) == columns,
                    "attention_cached: cache (B, S, 2 NKV D) of the type of qkv", cache, qkv);
  EBB_CHECK_TENSORS(is_vector(positions, DType::I32, operands.batch * operands.num_tokens),
                    "attention_cached: positions (B, T) int32", positions, out);
  EBB_CHECK(shape.causal && !shape.document_starts,
            "attention_cached: causal, and each row is one document");
  operands.cache = cache.data;
  operands.capacity = cache.dim(1);
  operands.positions = positions.as<int32_t>();
  return operands;
}

Cost AttentionCached::check() const {
  const AttentionOperands f = operands();
  const double flops =
      4.0 * static_cast<double>(f.batch * f.num_tokens * f.channels() * f.capacity);
  return {.flops = flops,
          .attention_flops = flops,
          .bytes = total_bytes(out, qkv, cache, positions),
          .name = "attention_cached"};
}

AttentionOperands AttentionBackward::operands() const {
  EBB_CHECK(log_sum_exp, "attention_backward: log_sum_exp (B, NH, T) fp32");
  AttentionOperands operands = describe_attention(qkv, out, log_sum_exp, shape);
  EBB_CHECK_TENSORS(dqkv.dtype == qkv.dtype && dqkv.shape == qkv.shape,
                    "attention_backward: dqkv must look like qkv", dqkv, qkv);
  EBB_CHECK_TENSORS(dout.dtype == out.dtype && dout.shape == out.shape,
                    "attention_backward: dout must look like out", dout, out);
  operands.dqkv = dqkv.data;
  operands.dout = dout.data;
  return operands;
}

Cost AttentionBackward::check() const {
  const double flops = 5.0 * operands().product_flops();
  return {.flops = flops,
          .attention_flops = flops,
          .attention_backward_flops = flops,
          .bytes = total_bytes(dqkv, dout, qkv, out, log_sum_exp, shape.document_starts),
          .name = "attention_backward"};
}

}  // namespace ebb

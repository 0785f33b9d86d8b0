#include "device/host/kernels/attention.h"

#include <cmath>
#include <string>

namespace ebb {

float AttentionCall::scale() const { return 1.0f / std::sqrt(static_cast<float>(head_size)); }

double AttentionCall::product_flops() const {
  const double pairs = static_cast<double>(num_tokens) * static_cast<double>(num_tokens);
  return 2.0 * static_cast<double>(batch * channels) * pairs * (causal ? 0.5 : 1.0);
}

AttentionCall describe_attention(const Tensor& qkv, const Tensor& out, const Tensor& log_sum_exp,
                                 const AttentionShape& shape) {
  EBB_CHECK(qkv.shape.rank() == 3 && out.shape.rank() == 3,
            "attention: qkv (B, T, 3C), out (B, T, C)");
  EBB_CHECK(is_float(qkv.dtype) && out.dtype == qkv.dtype,
            "attention: qkv and out must be of one float type");
  const int64_t batch = out.dim(0), num_tokens = out.dim(1), channels = out.dim(2);
  EBB_CHECK(qkv.dim(0) == batch && qkv.dim(1) == num_tokens && qkv.dim(2) == 3 * channels,
            "attention: qkv (B, T, 3C) and out (B, T, C) differ");
  EBB_CHECK(shape.num_heads > 0 && channels % shape.num_heads == 0,
            "attention: the number of heads must divide the channels");
  EBB_CHECK(is_vector(log_sum_exp, DType::F32, batch * shape.num_heads * num_tokens),
            "attention: log_sum_exp (B, NH, T) fp32");
  const Tensor& starts = shape.document_starts;
  EBB_CHECK(!starts || is_vector(starts, DType::I32, batch * num_tokens),
            "attention: document_starts (B, T) int32");
  return {.dtype = qkv.dtype,
          .batch = batch,
          .num_tokens = num_tokens,
          .channels = channels,
          .num_heads = shape.num_heads,
          .head_size = channels / shape.num_heads,
          .causal = shape.causal,
          .document_starts = starts ? starts.as<int32_t>() : nullptr,
          .qkv = qkv.data,
          .out = out.data,
          .log_sum_exp = log_sum_exp.as<float>()};
}

void check_documents(const AttentionCall& call) {
  if (call.document_starts == nullptr) return;
  for (int64_t b = 0; b < call.batch; ++b) {
    const int32_t* starts = call.document_starts + b * call.num_tokens;
    for (int64_t i = 0; i < call.num_tokens; ++i) {
      const bool opens = starts[i] == i;
      const bool continues = i > 0 && starts[i] == starts[i - 1];
      EBB_CHECK(opens || continues, "attention: document start " + std::to_string(starts[i]) +
                                        " of token " + std::to_string(i) + " in row " +
                                        std::to_string(b) + " is neither the token itself nor " +
                                        "the start of the token before");
    }
  }
}

}  // namespace ebb

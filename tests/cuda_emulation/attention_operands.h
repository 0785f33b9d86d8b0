// Returns AttentionOperands with a shape but without tensors.
#pragma once

#include "cuda/kernels/gpu_launch.h"

namespace ebb::test {

inline AttentionOperands attention_operands(DType dtype, int64_t batch, int64_t length,
                                            int64_t heads, int64_t kv_heads, int64_t head_size,
                                            bool causal = true, int64_t window = 0) {
  return {.dtype = dtype,
          .batch = batch,
          .num_tokens = length,
          .num_heads = heads,
          .num_kv_heads = kv_heads,
          .head_size = head_size,
          .causal = causal,
          .window = window};
}

}  // namespace ebb::test

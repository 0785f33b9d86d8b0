#include "cuda/kernels/attention.h"
#include "cuda/kernels/elementwise.h"

namespace ebb::cuda {
namespace {

constexpr int kRowWarps = 4;

/// Documents follow each other without gaps: each token begins a document or continues the document
/// of the token before.
__global__ void find_bad_start(const int32_t* starts, int64_t n, int64_t num_tokens,
                               DataError* error) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x;
  if (i >= n) return;
  const int64_t token = i % num_tokens;
  if (starts[i] == token || (token > 0 && starts[i] == starts[i - 1])) return;
  if (atomicCAS(&error->kind, DataError::None, DataError::DocumentStart) != DataError::None) return;
  error->row = i;
  error->value = starts[i];
  error->limit = num_tokens;
}

/// inner = sum of dout times out over the channels of a head. One warp computes one head of one
/// token.
template <class T>
__global__ void __launch_bounds__(kRowWarps* kWarp) sum_products(AttentionOperands f) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowWarps + warp_index();
  if (row >= f.batch * f.num_tokens * f.num_heads) return;
  const int64_t token = row / f.num_heads, head = row % f.num_heads;
  const T* out = static_cast<const T*>(f.out) + row * f.head_size;
  const T* dout = static_cast<const T*>(f.dout) + row * f.head_size;
  float sum = 0.0f;
  for (int64_t i = lane_index(); i < f.head_size; i += kWarp) {
    sum = fmaf(to_float(out[i]), to_float(dout[i]), sum);
  }
  sum = sum_of_warp(sum);
  const int64_t b = token / f.num_tokens, t = token % f.num_tokens;
  if (lane_index() == 0) f.inner[(b * f.num_heads + head) * f.num_tokens + t] = sum;
}

bool fits_tensor_cores(const AttentionOperands& f) {
  return f.dtype == DType::BF16 && f.head_size <= kLargestTensorHead;
}

}  // namespace

void check_documents(cudaStream_t stream, const AttentionOperands& f, DataError* error) {
  if (f.document_starts == nullptr) return;
  const int64_t n = f.batch * f.num_tokens;
  launch("check_documents", stream, blocks_for(n, kElementThreads), kElementThreads, 0,
         find_bad_start, f.document_starts, n, f.num_tokens, error);
}

void attention_forward(cudaStream_t stream, const AttentionOperands& f) {
  if (fits_tensor_cores(f)) return attention_forward_tensor(stream, f);
  attention_forward_plain(stream, f);
}

void attention_backward(cudaStream_t stream, const AttentionOperands& f) {
  with_float_type(f.dtype, [&](auto zero) {
    launch("attention_backward", stream,
           blocks_for(f.batch * f.num_tokens * f.num_heads, kRowWarps), kRowWarps * kWarp, 0,
           sum_products<decltype(zero)>, f);
  });
  if (fits_tensor_cores(f)) return attention_backward_tensor(stream, f);
  attention_backward_plain(stream, f);
}

}  // namespace ebb::cuda

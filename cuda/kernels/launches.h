// The launches of CudaKernels, by topic. Each function launches its kernels on the stream and
// returns.
//
// The caller has checked the arguments. device/kernels.h says what they mean and how results are
// written. All pointers are to memory that the device can read and write. The functions throw
// DeviceError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "cuda/data_error.h"
#include "device/dtype.h"
#include "device/kernels.h"

namespace ebb::cuda {

/// The largest number of channels of a head in attention and rotary kernels.
inline constexpr int64_t kLargestHead = 256;

/// Returns cudaSuccess if this build has code for the current device of this thread. Defined in
/// elementwise.cu.
cudaError_t find_code();

// ---- elementwise.cu -----------------------------------------------------------------------------
void activation_forward(cudaStream_t stream, const Tensor& y, const Tensor& x, Activation);
void activation_backward(cudaStream_t stream, const Tensor& dx, const Tensor& dy, const Tensor& x,
                         Activation, Write);
/// y = a + b. REQUIRES: y and a have the same type.
void add(cudaStream_t stream, const Tensor& y, const Tensor& a, const Tensor& b);
void dropout(cudaStream_t stream, const Tensor& x, const Dropout& dropout);

// ---- norm.cu ------------------------------------------------------------------------------------
struct LayerNormForward {
  Tensor y = {}, mean = {}, rstd = {}, x = {}, w = {}, b = {};
  float epsilon = 0;
};
void layer_norm_forward(cudaStream_t stream, const LayerNormForward& f);

struct LayerNormBackward {
  Tensor dx = {};
  Write dx_write = Write::Store;
  Tensor dw = {}, db = {};
  Write parameter_write = Write::Store;
  Tensor dy = {}, x = {}, w = {}, mean = {}, rstd = {};
  float* partials = nullptr;  ///< layer_norm_backward_floats()
};
size_t layer_norm_backward_floats(int64_t num_rows, int64_t num_columns);
void layer_norm_backward(cudaStream_t stream, const LayerNormBackward& f);

/// sums (C) fp32 = or += column sums of x (N, C).
size_t column_sums_floats(int64_t num_rows, int64_t num_columns);
void column_sums(cudaStream_t stream, const Tensor& sums, const Tensor& x, Write write,
                 float* partials);

// ---- rms_norm.cu --------------------------------------------------------------------------------
/// A norm of whole rows (heads {1, 0}, no wk), or of each head of queries and keys.
struct RmsNorm {
  Tensor x = {}, wq = {}, wk = {}, rstd = {};
  HeadCounts heads = {1, 0};
};
struct RmsNormGradients {
  Tensor dx = {}, dy = {};
  Write dx_write = Write::Store;
  Tensor dwq = {}, dwk = {};
  Write parameter_write = Write::Store;
  float* partials = nullptr;  ///< rms_norm_backward_floats()
};
void rms_norm_forward(cudaStream_t stream, const RmsNorm& f, const Tensor& y, float epsilon);
size_t rms_norm_backward_floats(const RmsNorm& f);
void rms_norm_backward(cudaStream_t stream, const RmsNorm& f, const RmsNormGradients& g);

// ---- rotary.cu ----------------------------------------------------------------------------------
/// REQUIRES: at most kLargestHead / 2 frequencies.
void rotary_table(cudaStream_t stream, const Tensor& table, const Tensor& positions,
                  std::span<const double> frequencies, double factor);
void rotary(cudaStream_t stream, const Tensor& x, const Tensor& table, int64_t num_heads,
            RotaryDirection way);
void swiglu_forward(cudaStream_t stream, const Tensor& y, const Tensor& x);
void swiglu_backward(cudaStream_t stream, const Tensor& dx, const Tensor& dy, const Tensor& x,
                     Write write);

// ---- embedding.cu -------------------------------------------------------------------------------
/// Records in `error` an index that is neither in [0, limit) nor `ignored`.
void check_indices(cudaStream_t stream, const Tensor& indices, int64_t limit, int64_t ignored,
                   DataError::Kind kind, DataError* error);
/// Output rows whose index is not in the table become NaN.
void embedding_forward(cudaStream_t stream, const Tensor& y, const Tensor& tokens,
                       const Tensor& positions, const Tensor& wte, const Tensor& wpe);
void embedding_backward(cudaStream_t stream, const Tensor& dtable, const Tensor& dy,
                        const Tensor& indices, Write write);

// ---- attention.cu and the files of its two kinds of kernels -------------------------------------
struct AttentionLaunch {
  DType dtype = DType::F32;
  int64_t batch = 0, num_tokens = 0, num_heads = 0, num_kv_heads = 0, head_size = 0;
  bool causal = true;
  int64_t window = 0;  ///< 0: all
  float scale = 1;
  Dropout dropout = {};
  float kept_factor = 1;  ///< dropout.kept_factor(), computed once on the host
  const int32_t* document_starts = nullptr;
  const void* qkv = nullptr;
  void* out = nullptr;
  float* log_sum_exp = nullptr;
  const void* dout = nullptr;  ///< this and the next two: backward only
  void* dqkv = nullptr;
  float* inner = nullptr;  ///< (B, NH, T): sums of dout times out over a head
  void* cache = nullptr;   ///< this and the next two: attention_cached() only
  int64_t capacity = 0;
  const int32_t* positions = nullptr;

  /// Columns of a row of qkv.
  int64_t qkv_columns() const { return (num_heads + 2 * num_kv_heads) * head_size; }
  /// Number of heads of queries that read one head of keys.
  int64_t group() const { return num_heads / num_kv_heads; }
};
void check_documents(cudaStream_t stream, const AttentionLaunch& f, DataError* error);
void attention_forward(cudaStream_t stream, const AttentionLaunch& f);
void attention_backward(cudaStream_t stream, const AttentionLaunch& f);
void check_positions(cudaStream_t stream, const AttentionLaunch& f, DataError* error);
void attention_cached(cudaStream_t stream, const AttentionLaunch& f);

// ---- loss.cu ------------------------------------------------------------------------------------
void cross_entropy(cudaStream_t stream, const Tensor& losses, const Tensor& logits,
                   const Tensor& targets, std::optional<float> gradient_scale);
void cross_entropy_statistics(cudaStream_t stream, const Tensor& losses, const Tensor& statistics,
                              const Tensor& logits, const Tensor& targets, ClassSlice slice);
void cross_entropy_gradient(cudaStream_t stream, const Tensor& logits, const Tensor& statistics,
                            const Tensor& targets, ClassSlice slice, float gradient_scale);
void sum(cudaStream_t stream, const Tensor& total, const Tensor& values, Write write);

// ---- gradient.cu --------------------------------------------------------------------------------
void round_gradient(cudaStream_t stream, const Tensor& gradient, const Tensor& sums,
                    const Tensor& more_sums, const Tensor& partials);
void squared_norm_pieces(cudaStream_t stream, const Tensor& partials, const Tensor& gradient);

// ---- adamw.cu -----------------------------------------------------------------------------------
void adamw(cudaStream_t stream, const Planes& planes, int64_t n,
           const AdamWCoefficients* coefficients);

}  // namespace ebb::cuda

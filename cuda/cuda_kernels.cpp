#include "cuda/cuda_kernels.h"

#include <cmath>
#include <string>

#include "cuda/attention.h"
#include "cuda/kernel_stream.h"
#include "cuda/kernels/launches.h"
#include "cuda/linear_layers.h"
#include "device/attention_call.h"
#include "device/backends.h"
#include "device/ignored_label.h"
#include "device/kernel_checks.h"

namespace ebb {
namespace {

class CudaKernels final : public Kernels {
 public:
  CudaKernels(const Workspace* workspace, DataError* data_error,
              std::unique_ptr<MatrixProducts> products, std::unique_ptr<AttentionLibrary> attention)
      : workspace_(workspace),
        data_error_(data_error),
        layers_(std::move(products)),
        attention_(std::move(attention)) {}
  /// Only counts calls.
  explicit CudaKernels(AttentionKernels counted)
      : workspace_(nullptr), data_error_(nullptr), layers_(nullptr), attention_(counted) {}

  void linear_forward(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias) override;
  void linear_activation_forward(Stream& stream, Tensor y, Tensor before, Tensor x, Tensor w,
                                 Tensor bias, Activation activation) override;
  void linear_backward_input(Stream& stream, Tensor dx, Tensor dy, Tensor w, Write write) override;
  void activation_linear_backward(Stream& stream, Tensor dbefore, Tensor dy, Tensor w,
                                  Tensor before, Activation activation) override;
  void linear_backward_weight(Stream& stream, Tensor dw, Tensor dbias, Tensor dy, Tensor x,
                              Write write) override;

  void layer_norm_forward(Stream& stream, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor w,
                          Tensor b, float epsilon) override {
    submit(stream, check_layer_norm_forward(y, mean, rstd, x, w, b), [&](cudaStream_t s) {
      cuda::layer_norm_forward(s, {y, mean, rstd, x, w, b, epsilon});
    });
  }
  void layer_norm_backward(Stream& stream, Tensor dx, Write dx_write, Tensor dw, Tensor db,
                           Write parameter_write, Tensor dy, Tensor x, Tensor w, Tensor mean,
                           Tensor rstd) override;

  void rms_norm_forward(Stream& stream, Tensor y, Tensor rstd, Tensor x, Tensor w,
                        float epsilon) override {
    submit(stream, check_rms_norm_forward(y, rstd, x, w), [&](cudaStream_t s) {
      cuda::rms_norm_forward(s, {.x = x, .wq = w, .rstd = rstd}, y, epsilon);
    });
  }
  void rms_norm_backward(Stream& stream, Tensor dx, Write dx_write, Tensor dw,
                         Write parameter_write, Tensor dy, Tensor x, Tensor w,
                         Tensor rstd) override {
    submit_rms_backward(stream, check_rms_norm_backward(dx, dw, dy, x, w, rstd),
                        {.x = x, .wq = w, .rstd = rstd},
                        {dx, dy, dx_write, dw, {}, parameter_write});
  }
  void head_norm_forward(Stream& stream, Tensor y, Tensor rstd, Tensor x, Tensor wq, Tensor wk,
                         HeadCounts heads, float epsilon) override {
    const cuda::RmsNorm f{x, wq, wk, rstd, heads};
    submit(stream, check_head_norm_forward(y, rstd, x, wq, wk, heads),
           [&](cudaStream_t s) { cuda::rms_norm_forward(s, f, y, epsilon); });
  }
  void head_norm_backward(Stream& stream, Tensor gradient, Tensor dwq, Tensor dwk,
                          Write parameter_write, Tensor x, Tensor wq, Tensor wk, Tensor rstd,
                          HeadCounts heads) override {
    submit_rms_backward(
        stream, check_head_norm_backward(gradient, dwq, dwk, x, wq, wk, rstd, heads),
        {x, wq, wk, rstd, heads}, {gradient, gradient, Write::Store, dwq, dwk, parameter_write});
  }

  void rotary_table(Stream& stream, Tensor table, Tensor positions,
                    std::span<const double> frequencies, double factor) override;
  void rotary(Stream& stream, Tensor x, Tensor table, int64_t num_heads,
              RotaryDirection way) override {
    submit(stream, check_rotary(x, table, num_heads),
           [&](cudaStream_t s) { cuda::rotary(s, x, table, num_heads, way); });
  }
  void swiglu_forward(Stream& stream, Tensor y, Tensor x) override {
    submit(stream, check_swiglu_forward(y, x),
           [&](cudaStream_t s) { cuda::swiglu_forward(s, y, x); });
  }
  void swiglu_backward(Stream& stream, Tensor dx, Tensor dy, Tensor x, Write write) override {
    submit(stream, check_swiglu_backward(dx, dy, x),
           [&](cudaStream_t s) { cuda::swiglu_backward(s, dx, dy, x, write); });
  }

  void activation_forward(Stream& stream, Tensor y, Tensor x, Activation activation) override {
    submit(stream, check_activation_forward(y, x),
           [&](cudaStream_t s) { cuda::activation_forward(s, y, x, activation); });
  }
  void activation_backward(Stream& stream, Tensor dx, Tensor dy, Tensor x, Activation activation,
                           Write write) override {
    submit(stream, check_activation_backward(dx, dy, x),
           [&](cudaStream_t s) { cuda::activation_backward(s, dx, dy, x, activation, write); });
  }
  void add(Stream& stream, Tensor y, Tensor a, Tensor b) override {
    submit(stream, check_add(y, a, b), [&](cudaStream_t s) { cuda::add(s, y, a, b); });
  }
  void dropout(Stream& stream, Tensor x, const Dropout& dropout) override {
    submit(stream, check_dropout(x, dropout),
           [&](cudaStream_t s) { cuda::dropout(s, x, dropout); });
  }
  void accumulate(Stream& stream, Tensor y, Tensor x) override {
    submit(stream, check_accumulate(y, x), [&](cudaStream_t s) { cuda::add(s, y, y, x); });
  }
  void fill_zero(Stream& stream, Tensor y) override {
    submit(stream, {.bytes = total_bytes(y), .name = "fill_zero"},
           [&](cudaStream_t s) { zero(s, y); });
  }

  void embedding_forward(Stream& stream, Tensor y, Tensor tokens, Tensor positions, Tensor wte,
                         Tensor wpe) override;
  void embedding_backward(Stream& stream, Tensor dtable, Tensor dy, Tensor indices,
                          Write write) override;

  void attention_forward(Stream& stream, Tensor out, Tensor log_sum_exp, Tensor qkv,
                         const AttentionShape& shape) override;
  void attention_cached(Stream& stream, Tensor out, Tensor qkv, Tensor cache, Tensor positions,
                        const AttentionShape& shape) override;
  void attention_backward(Stream& stream, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out,
                          Tensor log_sum_exp, const AttentionShape& shape) override;

  void cross_entropy(Stream& stream, Tensor losses, Tensor logits, Tensor targets,
                     std::optional<float> gradient_scale) override;
  void cross_entropy_statistics(Stream& stream, Tensor losses, Tensor statistics, Tensor logits,
                                Tensor targets, ClassSlice slice) override;
  void cross_entropy_gradient(Stream& stream, Tensor logits, Tensor statistics, Tensor targets,
                              ClassSlice slice, float gradient_scale) override;
  void sum(Stream& stream, Tensor total, Tensor values, Write write) override {
    submit(stream, check_sum(total, values),
           [&](cudaStream_t s) { cuda::sum(s, total, values, write); });
  }

  void round_gradient(Stream& stream, Tensor gradient, Tensor sums, Tensor more_sums,
                      Tensor partials) override {
    submit(stream, check_finish_gradient(gradient, sums, more_sums, partials),
           [&](cudaStream_t s) { cuda::round_gradient(s, gradient, sums, more_sums, partials); });
  }
  void squared_norm_pieces(Stream& stream, Tensor partials, Tensor gradient) override {
    submit(stream, check_squared_norm_pieces(partials, gradient),
           [&](cudaStream_t s) { cuda::squared_norm_pieces(s, partials, gradient); });
  }
  void adamw(Stream& stream, const Planes& planes, int64_t n,
             const AdamWCoefficients* coefficients) override {
    submit(stream, check_adamw(planes, n, coefficients),
           [&](cudaStream_t s) { cuda::adamw(s, planes, n, coefficients); });
  }

 private:
  /// Launches at once on a stream of a GPU. On the simulated device the call is only counted.
  template <class Launch>
  void submit(Stream& stream, const Cost& cost, const Launch& launch) {
    auto* gpu = dynamic_cast<KernelStream*>(&stream);
    if (gpu != nullptr) return gpu->launch(cost, launch);
    stream.submit(cost, [] {
      EBB_CHECK(false, "kernels of the CUDA backend were submitted to a stream of the host");
    });
  }

  void submit_rms_backward(Stream& stream, Cost cost, const cuda::RmsNorm& f,
                           cuda::RmsNormGradients gradients) {
    cost.workspace_bytes = cuda::rms_norm_backward_floats(f) * sizeof(float);
    submit(stream, cost, [&](cudaStream_t s) {
      gradients.partials = scratch<float>(cost.workspace_bytes);
      cuda::rms_norm_backward(s, f, gradients);
    });
  }

  /// The workspace as an array of T. REQUIRES: it has at least `bytes` bytes.
  template <class T>
  T* scratch(size_t bytes) const {
    EBB_CHECK(workspace_ != nullptr && bytes <= workspace_->bytes,
              "a kernel's workspace was not reserved");
    return reinterpret_cast<T*>(workspace_->data);
  }
  void zero(cudaStream_t stream, const Tensor& t) const {
    if (t.bytes() == 0) return;
    const cudaError_t status = cudaMemsetAsync(t.data, 0, t.bytes(), stream);
    if (status != cudaSuccess) {
      throw DeviceError(std::string("fill_zero: ") + cudaGetErrorString(status));
    }
  }

  const Workspace* const workspace_;
  DataError* const data_error_;
  LinearLayers layers_;
  Attention attention_;
};

// ---- Linear -------------------------------------------------------------------------------------

void CudaKernels::linear_forward(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias) {
  Cost cost = check_linear_forward(y, x, w, bias);
  cost.workspace_bytes = kProductWorkspaceBytes;
  submit(stream, cost, [&](cudaStream_t s) {
    layers_.forward(s, y, x, w, bias, scratch<std::byte>(cost.workspace_bytes));
  });
}

void CudaKernels::linear_activation_forward(Stream& stream, Tensor y, Tensor before, Tensor x,
                                            Tensor w, Tensor bias, Activation activation) {
  if (!goes_with_products(activation, before)) {
    return Kernels::linear_activation_forward(stream, y, before, x, w, bias, activation);
  }
  Cost cost = check_linear_activation_forward(y, before, x, w, bias);
  cost.workspace_bytes = kProductWorkspaceBytes;
  submit(stream, cost, [&](cudaStream_t s) {
    layers_.forward_with_gelu(s, y, before, x, w, bias, scratch<std::byte>(cost.workspace_bytes));
  });
}

void CudaKernels::linear_backward_input(Stream& stream, Tensor dx, Tensor dy, Tensor w,
                                        Write write) {
  Cost cost = check_linear_backward_input(dx, dy, w);
  cost.workspace_bytes = kProductWorkspaceBytes;
  submit(stream, cost, [&](cudaStream_t s) {
    layers_.backward_input(s, dx, dy, w, write, scratch<std::byte>(cost.workspace_bytes));
  });
}

void CudaKernels::activation_linear_backward(Stream& stream, Tensor dbefore, Tensor dy, Tensor w,
                                             Tensor before, Activation activation) {
  if (!goes_with_products(activation, before)) {
    return Kernels::activation_linear_backward(stream, dbefore, dy, w, before, activation);
  }
  Cost cost = check_activation_linear_backward(dbefore, dy, w, before);
  cost.workspace_bytes = kProductWorkspaceBytes;
  submit(stream, cost, [&](cudaStream_t s) {
    layers_.backward_input_with_gelu(s, dbefore, dy, w, before,
                                     scratch<std::byte>(cost.workspace_bytes));
  });
}

void CudaKernels::linear_backward_weight(Stream& stream, Tensor dw, Tensor dbias, Tensor dy,
                                         Tensor x, Write write) {
  Cost cost = check_linear_backward_weight(dw, dbias, dy, x);
  cost.workspace_bytes = LinearLayers::weight_workspace_bytes(dbias, dy);
  submit(stream, cost, [&](cudaStream_t s) {
    layers_.backward_weight(s, dw, dbias, dy, x, write, scratch<std::byte>(cost.workspace_bytes));
  });
}

void CudaKernels::layer_norm_backward(Stream& stream, Tensor dx, Write dx_write, Tensor dw,
                                      Tensor db, Write parameter_write, Tensor dy, Tensor x,
                                      Tensor w, Tensor mean, Tensor rstd) {
  Cost cost = check_layer_norm_backward(dx, dw, db, dy, x, w, mean, rstd);
  cost.workspace_bytes = cuda::layer_norm_backward_floats(x.rows(), x.columns()) * sizeof(float);
  const cuda::LayerNormBackward f{dx, dx_write, dw, db, parameter_write, dy, x, w, mean, rstd};
  submit(stream, cost, [&](cudaStream_t s) {
    cuda::LayerNormBackward with_scratch = f;
    with_scratch.partials = scratch<float>(cost.workspace_bytes);
    cuda::layer_norm_backward(s, with_scratch);
  });
}

void CudaKernels::rotary_table(Stream& stream, Tensor table, Tensor positions,
                               std::span<const double> frequencies, double factor) {
  const Cost cost = check_rotary_table(table, positions, frequencies);
  EBB_CHECK(table.columns() <= cuda::kLargestHead,
            "rotary_table: heads of " + std::to_string(table.columns()) +
                " channels; the CUDA backend has kernels for up to " +
                std::to_string(cuda::kLargestHead));
  submit(stream, cost,
         [&](cudaStream_t s) { cuda::rotary_table(s, table, positions, frequencies, factor); });
}

void CudaKernels::embedding_forward(Stream& stream, Tensor y, Tensor tokens, Tensor positions,
                                    Tensor wte, Tensor wpe) {
  submit(stream, check_embedding_forward(y, tokens, positions, wte, wpe), [&](cudaStream_t s) {
    cuda::check_indices(s, tokens, wte.rows(), 0, DataError::Token, data_error_);
    if (wpe) cuda::check_indices(s, positions, wpe.rows(), 0, DataError::Token, data_error_);
    cuda::embedding_forward(s, y, tokens, positions, wte, wpe);
  });
}

void CudaKernels::embedding_backward(Stream& stream, Tensor dtable, Tensor dy, Tensor indices,
                                     Write write) {
  submit(stream, check_embedding_backward(dtable, dy, indices, write), [&](cudaStream_t s) {
    cuda::check_indices(s, indices, dtable.rows(), 0, DataError::Token, data_error_);
    cuda::embedding_backward(s, dtable, dy, indices, write);
  });
}

// ---- Attention ----------------------------------------------------------------------------------

cuda::AttentionLaunch launch_of(const AttentionOperands& operands) {
  EBB_CHECK(operands.head_size <= cuda::kLargestHead,
            "attention: heads of " + std::to_string(operands.head_size) +
                " channels; the CUDA backend has kernels for up to " +
                std::to_string(cuda::kLargestHead) + ", take more heads or --device host");
  return {.dtype = operands.dtype,
          .batch = operands.batch,
          .num_tokens = operands.num_tokens,
          .num_heads = operands.num_heads,
          .num_kv_heads = operands.num_kv_heads,
          .head_size = operands.head_size,
          .causal = operands.causal,
          .window = operands.window,
          .scale = operands.scale,
          .dropout = operands.dropout,
          .kept_factor = operands.dropout.kept_factor(),
          .document_starts = operands.document_starts,
          .qkv = operands.qkv,
          .out = operands.out,
          .log_sum_exp = operands.log_sum_exp,
          .dout = operands.dout,
          .dqkv = operands.dqkv,
          .cache = operands.cache,
          .capacity = operands.capacity,
          .positions = operands.positions};
}

void CudaKernels::attention_forward(Stream& stream, Tensor out, Tensor log_sum_exp, Tensor qkv,
                                    const AttentionShape& shape) {
  AttentionOperands operands;
  Cost cost = check_attention_forward(out, log_sum_exp, qkv, shape, &operands);
  cost.workspace_bytes = kAttentionWorkspaceBytes;
  const cuda::AttentionLaunch f = launch_of(operands);
  submit(stream, cost, [&](cudaStream_t s) {
    attention_.forward(s, f, scratch<std::byte>(cost.workspace_bytes), data_error_);
  });
}

void CudaKernels::attention_cached(Stream& stream, Tensor out, Tensor qkv, Tensor cache,
                                   Tensor positions, const AttentionShape& shape) {
  AttentionOperands operands;
  const Cost cost = check_attention_cached(out, qkv, cache, positions, shape, &operands);
  const cuda::AttentionLaunch f = launch_of(operands);
  submit(stream, cost, [&](cudaStream_t s) {
    cuda::check_positions(s, f, data_error_);
    cuda::attention_cached(s, f);
  });
}

void CudaKernels::attention_backward(Stream& stream, Tensor dqkv, Tensor dout, Tensor qkv,
                                     Tensor out, Tensor log_sum_exp, const AttentionShape& shape) {
  AttentionOperands operands;
  Cost cost = check_attention_backward(dqkv, dout, qkv, out, log_sum_exp, shape, &operands);
  const cuda::AttentionLaunch f = launch_of(operands);
  cost.workspace_bytes = attention_.backward_workspace_bytes(f);
  submit(stream, cost, [&](cudaStream_t s) {
    attention_.backward(s, f, scratch<std::byte>(cost.workspace_bytes), data_error_);
  });
}

// ---- Loss ---------------------------------------------------------------------------------------

void CudaKernels::cross_entropy(Stream& stream, Tensor losses, Tensor logits, Tensor targets,
                                std::optional<float> gradient_scale) {
  submit(stream, check_cross_entropy(losses, logits, targets, gradient_scale.has_value()),
         [&](cudaStream_t s) {
           cuda::check_indices(s, targets, logits.columns(), kIgnoredLabel, DataError::Target,
                               data_error_);
           cuda::cross_entropy(s, losses, logits, targets, gradient_scale);
         });
}

void CudaKernels::cross_entropy_statistics(Stream& stream, Tensor losses, Tensor statistics,
                                           Tensor logits, Tensor targets, ClassSlice slice) {
  submit(stream, check_cross_entropy_statistics(losses, statistics, logits, targets, slice),
         [&](cudaStream_t s) {
           cuda::check_indices(s, targets, slice.num_classes, kIgnoredLabel, DataError::Target,
                               data_error_);
           cuda::cross_entropy_statistics(s, losses, statistics, logits, targets, slice);
         });
}

void CudaKernels::cross_entropy_gradient(Stream& stream, Tensor logits, Tensor statistics,
                                         Tensor targets, ClassSlice slice, float gradient_scale) {
  submit(stream, check_cross_entropy_gradient(logits, statistics, targets, slice),
         [&](cudaStream_t s) {
           cuda::check_indices(s, targets, slice.num_classes, kIgnoredLabel, DataError::Target,
                               data_error_);
           cuda::cross_entropy_gradient(s, logits, statistics, targets, slice, gradient_scale);
         });
}

}  // namespace

std::unique_ptr<Kernels> create_cuda_kernels(const Workspace& workspace, DataError* data_error,
                                             std::unique_ptr<AttentionLibrary> attention) {
  return std::make_unique<CudaKernels>(&workspace, data_error, create_matrix_products(),
                                       std::move(attention));
}

std::unique_ptr<Kernels> create_counting_cuda_kernels(AttentionKernels attention) {
  return std::make_unique<CudaKernels>(attention);
}

}  // namespace ebb

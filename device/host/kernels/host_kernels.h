// The kernels of the host backend. Each group of kernels has a file of its own with checks, costs
// and arithmetic. The arithmetic is dispatched at run time to the best instruction set. One object
// serves one compute stream at a time.
#pragma once

#include <span>

#include "device/backends.h"
#include "device/dtype.h"
#include "device/host/kernels/tasks.h"
#include "device/kernel_checks.h"
#include "device/kernels.h"
#include "system/thread_team.h"

namespace ebb {

class HostKernels final : public Kernels {
 public:
  HostKernels(ThreadTeam& team, const Workspace& workspace, Arithmetic arithmetic)
      : team_(team), workspace_(workspace), arithmetic_(arithmetic) {}

  void linear_forward(Stream&, Tensor y, Tensor x, Tensor w, Tensor bias) override;
  void linear_backward_input(Stream&, Tensor dx, Tensor dy, Tensor w, Write) override;
  void linear_backward_weight(Stream&, Tensor dw, Tensor dbias, Tensor dy, Tensor x,
                              Write) override;

  void layer_norm_forward(Stream&, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor w, Tensor b,
                          float epsilon) override;
  void layer_norm_backward(Stream&, Tensor dx, Write dx_write, Tensor dw, Tensor db,
                           Write parameter_write, Tensor dy, Tensor x, Tensor w, Tensor mean,
                           Tensor rstd) override;

  void rms_norm_forward(Stream&, Tensor y, Tensor rstd, Tensor x, Tensor w, float epsilon) override;
  void rms_norm_backward(Stream&, Tensor dx, Write dx_write, Tensor dw, Write parameter_write,
                         Tensor dy, Tensor x, Tensor w, Tensor rstd) override;
  void head_norm_forward(Stream&, Tensor y, Tensor rstd, Tensor x, Tensor wq, Tensor wk, HeadCounts,
                         float epsilon) override;
  void head_norm_backward(Stream&, Tensor gradient, Tensor dwq, Tensor dwk, Write parameter_write,
                          Tensor x, Tensor wq, Tensor wk, Tensor rstd, HeadCounts) override;

  void rotary_table(Stream&, Tensor table, Tensor positions, std::span<const double> frequencies,
                    double factor) override;
  void rotary(Stream&, Tensor x, Tensor table, int64_t num_heads, RotaryDirection) override;
  void swiglu_forward(Stream&, Tensor y, Tensor x) override;
  void swiglu_backward(Stream&, Tensor dx, Tensor dy, Tensor x, Write) override;

  void activation_forward(Stream&, Tensor y, Tensor x, Activation) override;
  void activation_backward(Stream&, Tensor dx, Tensor dy, Tensor x, Activation, Write) override;
  void add(Stream&, Tensor y, Tensor a, Tensor b) override;
  void accumulate(Stream&, Tensor y, Tensor x) override;
  void fill_zero(Stream&, Tensor y) override;
  void dropout(Stream&, Tensor x, const Dropout& dropout) override;

  void embedding_forward(Stream&, Tensor y, Tensor tokens, Tensor positions, Tensor wte,
                         Tensor wpe) override;
  void embedding_backward(Stream&, Tensor dtable, Tensor dy, Tensor indices, Write) override;

  void attention_forward(Stream&, Tensor out, Tensor log_sum_exp, Tensor qkv,
                         const AttentionShape&) override;
  void attention_cached(Stream&, Tensor out, Tensor qkv, Tensor cache, Tensor positions,
                        const AttentionShape&) override;
  void attention_backward(Stream&, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out,
                          Tensor log_sum_exp, const AttentionShape&) override;

  void cross_entropy(Stream&, Tensor losses, Tensor logits, Tensor targets,
                     std::optional<float> gradient_scale) override;
  void cross_entropy_statistics(Stream&, Tensor losses, Tensor statistics, Tensor logits,
                                Tensor targets, ClassSlice slice) override;
  void cross_entropy_gradient(Stream&, Tensor logits, Tensor statistics, Tensor targets,
                              ClassSlice slice, float gradient_scale) override;
  void sum(Stream&, Tensor total, Tensor values, Write) override;

  void round_gradient(Stream&, Tensor gradient, Tensor sums, Tensor more_sums,
                      Tensor partials) override;
  void squared_norm_pieces(Stream&, Tensor partials, Tensor gradient) override;
  void adamw(Stream&, const Planes& planes, int64_t n,
             const AdamWCoefficients* coefficients) override;

 private:
  ThreadTeam& team_;
  const Workspace& workspace_;
  Arithmetic arithmetic_;
};

}  // namespace ebb

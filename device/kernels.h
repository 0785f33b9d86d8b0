// The interface of the kernels of a device. Primitives and the optimizer call these kernels.
//
// Every call is asynchronous on its stream and reads its arguments when it runs, so the memory must
// stay valid until then. Sums are fp32 or fp64. Results depend only on values and shapes: not on
// the number of threads, on addresses or on earlier calls. x, w and activations are fp32, bf16 or
// fp16, all of one type in a call. Statistics, losses and parameter gradients are fp32. Sizes: B
// sequences of T tokens, N rows (often N = B T), C channels.
//
// Every call checks the shapes and throws LogicError if they do not match. No call allocates.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "device/dropout.h"
#include "device/planes.h"
#include "device/stream.h"
#include "device/tensor.h"

namespace ebb {

/// Whether a result is stored or added to the old value. The first contribution to a gradient is
/// stored, later contributions are added. A contribution is always summed from zero in fp32 first,
/// and then added once.
enum class Write : uint8_t { Store, Add };

/// GeluTanh is the tanh formula of GPT-2. Gelu is exact, by the error function, as in BERT.
enum class Activation : uint8_t { GeluTanh, Relu, Gelu };

/// The parameters of attention. `document_starts` (B, T) int32 is for packed samples: element i is
/// the position at which the document of token i starts, counted from the start of its sequence;
/// null: each sequence is one document. Grouped queries: if there are fewer heads of keys and
/// values than of queries, query head h reads key head h / (num_heads / num_kv_heads). The size D
/// of a head follows from the tensors.
struct AttentionShape {
  int64_t num_heads = 1;
  bool causal = true;
  Tensor document_starts = {};
  int64_t num_kv_heads = 0;  ///< 0: as many as heads
  int64_t window = 0;        ///< a query sees itself and window - 1 tokens before it; 0: all
  float scale = 0;           ///< of the scores; 0: 1 / sqrt(D)
  Dropout dropout = {};      ///< of the attention probabilities

  int64_t kv_heads() const { return num_kv_heads == 0 ? num_heads : num_kv_heads; }
};

/// The numbers of heads in a row of qkv. A row has (NH + 2 NKV) D columns: queries, then keys, then
/// values.
struct HeadCounts {
  int64_t queries = 1;
  int64_t keys = 1;  ///< there are as many heads of values
};

/// The direction in which rotary() turns pairs. The backward turns the gradient back.
enum class RotaryDirection : uint8_t { Forward, Backward };

/// A slice of logits. Its columns are the classes first, first + 1, ... of num_classes.
struct ClassSlice {
  int64_t first = 0;
  int64_t num_classes = 0;
};

/// The coefficients of an AdamW update (cpu_adam/adamw.h), in the form that kernels use.
struct AdamWCoefficients {
  float gradient_scale;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float decay_rate;
  float step_size;
  float v_correction;
  float epsilon;
  uint32_t skip = 0;  ///< not 0: the update changes nothing
};

class Kernels {
 public:
  virtual ~Kernels() = default;

  // y (N, OC) = x (N, C) w^T + bias; w (OC, C); bias (OC) or empty.
  virtual void linear_forward(Stream&, Tensor y, Tensor x, Tensor w, Tensor bias) = 0;
  // before (N, OC) = x w^T + bias, y = activation(before). A backend may compute y from the rounded
  // `before` or from its fp32 value.
  virtual void linear_activation_forward(Stream& stream, Tensor y, Tensor before, Tensor x,
                                         Tensor w, Tensor bias, Activation activation) {
    linear_forward(stream, before, x, w, bias);
    activation_forward(stream, y, before, activation);
  }
  // dx (N, C) = dy (N, OC) w. dx has the type of dy and w, or is fp32.
  virtual void linear_backward_input(Stream&, Tensor dx, Tensor dy, Tensor w, Write) = 0;
  // dbefore (N, C) = (dy (N, OC) w) * activation'(before): the backward of a linear layer whose
  // input is activation(before). All tensors have one type. dy w may be rounded before the product.
  virtual void activation_linear_backward(Stream& stream, Tensor dbefore, Tensor dy, Tensor w,
                                          Tensor before, Activation activation) {
    linear_backward_input(stream, dbefore, dy, w, Write::Store);
    activation_backward(stream, dbefore, dbefore, before, activation, Write::Store);
  }
  // dw (OC, C) fp32 = dy^T x; dbias (OC) fp32 = column sums of dy, or empty
  virtual void linear_backward_weight(Stream&, Tensor dw, Tensor dbias, Tensor dy, Tensor x,
                                      Write) = 0;

  // y (N, C) = (x - mean) * rstd * w + b; mean, rstd (N) fp32.
  virtual void layer_norm_forward(Stream&, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor w,
                                  Tensor b, float epsilon) = 0;
  // dx is stored or added by `dx_write`; dw and db (C) fp32 by `parameter_write`.
  virtual void layer_norm_backward(Stream&, Tensor dx, Write dx_write, Tensor dw, Tensor db,
                                   Write parameter_write, Tensor dy, Tensor x, Tensor w,
                                   Tensor mean, Tensor rstd) = 0;

  // y (N, C) = x * rstd * w; rstd (N) fp32 = 1 / sqrt(mean of x^2 + epsilon).
  virtual void rms_norm_forward(Stream&, Tensor y, Tensor rstd, Tensor x, Tensor w,
                                float epsilon) = 0;
  // dx is stored or added by `dx_write`; dw (C) fp32 by `parameter_write`.
  virtual void rms_norm_backward(Stream&, Tensor dx, Write dx_write, Tensor dw,
                                 Write parameter_write, Tensor dy, Tensor x, Tensor w,
                                 Tensor rstd) = 0;
  // RMS norm of each head of queries and keys in x (N, (NH + 2 NKV) D), separately. Values are
  // copied. wq, wk (D); rstd (N, NH + NKV) fp32.
  virtual void head_norm_forward(Stream&, Tensor y, Tensor rstd, Tensor x, Tensor wq, Tensor wk,
                                 HeadCounts, float epsilon) = 0;
  // In place: `gradient` holds dy and becomes dx. dwq, dwk (D) fp32.
  virtual void head_norm_backward(Stream&, Tensor gradient, Tensor dwq, Tensor dwk,
                                  Write parameter_write, Tensor x, Tensor wq, Tensor wk,
                                  Tensor rstd, HeadCounts) = 0;

  // table (N, D) fp32: factor * cos(position * frequency) for D / 2 frequencies, then factor * sin,
  // from angles in fp64. positions (N) int32. The frequencies are in host memory, which must stay
  // valid until the kernel has run.
  virtual void rotary_table(Stream&, Tensor table, Tensor positions,
                            std::span<const double> frequencies, double factor) = 0;
  // In place: the first num_heads heads of D columns in x (N, C) are turned by table (N, D).
  // Elements i and i + D / 2 of a head are a pair (Hugging Face's order; Su et al. 2021).
  virtual void rotary(Stream&, Tensor x, Tensor table, int64_t num_heads, RotaryDirection) = 0;

  // y (N, F) = silu(gate) * up of x (N, 2F): gate, then up (Shazeer 2020).
  virtual void swiglu_forward(Stream&, Tensor y, Tensor x) = 0;
  virtual void swiglu_backward(Stream&, Tensor dx, Tensor dy, Tensor x, Write) = 0;

  virtual void activation_forward(Stream&, Tensor y, Tensor x, Activation) = 0;
  virtual void activation_backward(Stream&, Tensor dx, Tensor dy, Tensor x, Activation, Write) = 0;

  // y = a + b
  virtual void add(Stream&, Tensor y, Tensor a, Tensor b) = 0;
  // y += x
  virtual void accumulate(Stream&, Tensor y, Tensor x) = 0;
  virtual void fill_zero(Stream&, Tensor y) = 0;
  // In place: each element of x (B, ...) is kept and scaled, or becomes 0. The backward is the same
  // operation on the gradient.
  virtual void dropout(Stream&, Tensor x, const Dropout&) = 0;

  // y (N, C) = wte[tokens[i]] + wpe[positions[i]]; tokens, positions (N) int32; wpe, positions may
  // be empty.
  virtual void embedding_forward(Stream&, Tensor y, Tensor tokens, Tensor positions, Tensor wte,
                                 Tensor wpe) = 0;
  // dtable (V, C) fp32: row v is the sum of the rows of dy whose index is v, in row order. Rows
  // without an index become 0 (Store) or stay unchanged (Add).
  virtual void embedding_backward(Stream&, Tensor dtable, Tensor dy, Tensor indices, Write) = 0;

  // out (B, T, NH D), log_sum_exp (B, NH, T) fp32 of qkv (B, T, (NH + 2 NKV) D): queries, keys,
  // values next to each other, each with its heads. Never stores T x T scores for all heads.
  virtual void attention_forward(Stream&, Tensor out, Tensor log_sum_exp, Tensor qkv,
                                 const AttentionShape&) = 0;
  // Causal attention of new tokens only. Keys and values of qkv are first written to the cache (B,
  // S, 2 NKV D), in which rows are positions. Then each query reads the cache at all positions up
  // to its own. positions (B, T) int32 are consecutive in a row and below S. Documents are not
  // supported.
  virtual void attention_cached(Stream&, Tensor out, Tensor qkv, Tensor cache, Tensor positions,
                                const AttentionShape&) = 0;
  virtual void attention_backward(Stream&, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out,
                                  Tensor log_sum_exp, const AttentionShape&) = 0;

  // losses (N) fp32 = -log softmax(logits)[target], 0 where target == -100. With `gradient_scale`,
  // logits are replaced by their gradient: (softmax - onehot) * scale, 0 in ignored rows. logits
  // (N, V), targets (N) int32.
  virtual void cross_entropy(Stream&, Tensor losses, Tensor logits, Tensor targets,
                             std::optional<float> gradient_scale) = 0;
  // Cross entropy in slices of classes: one pass over all slices computes the losses, a second pass
  // the gradient. logits (N, S) are those of `slice`. statistics (N, 3) fp32 cover the slices so
  // far: the greatest logit of a row, the sum of e^(logit - greatest), and the logit of the row's
  // target. The calls go through the slices in order: the first call initialises the statistics,
  // the last call writes losses (N) fp32.
  virtual void cross_entropy_statistics(Stream&, Tensor losses, Tensor statistics, Tensor logits,
                                        Tensor targets, ClassSlice slice) = 0;
  // Replaces logits (N, S) by their gradient. `statistics` cover all slices. Slices may come in any
  // order.
  virtual void cross_entropy_gradient(Stream&, Tensor logits, Tensor statistics, Tensor targets,
                                      ClassSlice slice, float gradient_scale) = 0;
  // total (1) fp64 = or += the sum of values (N) fp32, in a fixed tree.
  virtual void sum(Stream&, Tensor total, Tensor values, Write) = 0;

  // One range of a finished gradient: gradient (n) fp32, bf16 or fp16 = sums (n) + more_sums (n),
  // fp32, rounded to the type once. With `partials`, the same pass also computes
  // squared_norm_pieces() of the result. more_sums and partials may be empty.
  virtual void round_gradient(Stream&, Tensor gradient, Tensor sums, Tensor more_sums,
                              Tensor partials) = 0;
  // partials (P) fp64: partial p = sum of squares of gradient elements [p * kPieceElements, ...),
  // each computed as 64 sums, which are added in a fixed tree. gradient fp32, bf16 or fp16.
  virtual void squared_norm_pieces(Stream&, Tensor partials, Tensor gradient) = 0;

  // An AdamW update of n elements of state that is on the device. The results have the same bits as
  // those of cpu_adam/. The coefficients are in pinned host memory and are read when the kernel
  // runs.
  virtual void adamw(Stream&, const Planes& planes, int64_t n,
                     const AdamWCoefficients* coefficients) = 0;
};

/// Elements of a piece: the unit in which gradient norms are summed.
inline constexpr int64_t kPieceElements = 65536;

}  // namespace ebb

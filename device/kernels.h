// The kernels a device offers: what the modules of a model are made of.
//
// Every call is asynchronous on the stream it is given and reads its arguments when it runs, so the
// memory must stay valid until then. Sums are fp32 or better. Results depend on values and shapes
// only: not on threads, not on placement, not on what ran before. x, w, activations: fp32, bf16 or
// fp16, all of one type in a call; statistics, losses and parameter gradients: fp32. T tokens in a
// row, N rows, C channels.
//
// Shapes are checked when called: LogicError. No call allocates.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "device/dropout.h"
#include "device/stream.h"
#include "device/tensor.h"

namespace ebb {

/// How a result meets what is there: a gradient's first contribution is stored, later ones are
/// added. The contribution is always computed from zero in fp32 first, then added once.
enum class Write : uint8_t { Store, Add };

/// GELU as GPT-2's tanh formula, or exactly, by the error function, as BERT's.
enum class Activation : uint8_t { GeluTanh, Relu, Gelu };

/// Attention over packed samples: documents[i] is the position in the (B, T) batch at which token
/// i's document starts, counted from the start of its row; null = each row is one document. (B, T)
/// int32. Grouped queries: with fewer heads of keys and values than of queries, query head h reads
/// key head h / (num_heads / num_kv_heads). The size D of a head follows from the tensors.
struct AttentionShape {
  int64_t num_heads = 1;
  bool causal = true;
  Tensor document_starts = {};
  int64_t num_kv_heads = 0;  ///< 0: as many as heads
  int64_t window = 0;        ///< a query sees itself and window - 1 tokens before it; 0: all
  float scale = 0;           ///< of the scores; 0: 1 / sqrt(D)
  Dropout dropout = {};      ///< of the weights

  int64_t kv_heads() const { return num_kv_heads == 0 ? num_heads : num_kv_heads; }
};

/// Heads in rows of qkv: (NH + 2 NKV) D columns, queries, then keys, then values.
struct HeadCounts {
  int64_t queries = 1;
  int64_t keys = 1;  ///< and as many values
};

/// Which way rotary() turns: as the forward does, or a gradient back.
enum class RotaryDirection : uint8_t { Forward, Backward };

/// A slice of logits: its columns are classes first, first + 1, ... of num_classes.
struct ClassSlice {
  int64_t first = 0;
  int64_t num_classes = 0;
};

/// The constants of an AdamW update (cpu_adam/adamw.h) as kernels use them.
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

/// n elements of each plane, on the device.
struct AdamWPlanes {
  Tensor weight = {};       ///< fp32, bf16 or fp16
  int16_t* low = nullptr;   ///< of bf16 weights: what rounding the fp32 master to them left
  float* master = nullptr;  ///< of fp16 weights, which are these rounded
  Tensor momentum = {}, variance = {};  ///< fp32
  Tensor gradient = {};                 ///< fp32, bf16 or fp16
};

class Kernels {
 public:
  virtual ~Kernels() = default;

  // y (N, OC) = x (N, C) w^T + bias; w (OC, C); bias (OC) or empty.
  virtual void linear_forward(Stream&, Tensor y, Tensor x, Tensor w, Tensor bias) = 0;
  // before (N, OC) = x w^T + bias, y = activation(before): of what `before` holds, or of the fp32
  // that was rounded to it.
  virtual void linear_activation_forward(Stream& stream, Tensor y, Tensor before, Tensor x,
                                         Tensor w, Tensor bias, Activation activation) {
    linear_forward(stream, before, x, w, bias);
    activation_forward(stream, y, before, activation);
  }
  // dx (N, C) = dy (N, OC) w; dx of their type, or fp32.
  virtual void linear_backward_input(Stream&, Tensor dx, Tensor dy, Tensor w, Write) = 0;
  // dbefore (N, C) = (dy (N, OC) w) times the activation's slope at `before`, all of one type: back
  // through a linear layer that took activation(before). dy w may be rounded on the way.
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
  // dx as `dx_write` says; dw, db (C) fp32 as `parameter_write` says.
  virtual void layer_norm_backward(Stream&, Tensor dx, Write dx_write, Tensor dw, Tensor db,
                                   Write parameter_write, Tensor dy, Tensor x, Tensor w,
                                   Tensor mean, Tensor rstd) = 0;

  // y (N, C) = x * rstd * w; rstd (N) fp32 = 1 / sqrt(mean of x^2 + epsilon).
  virtual void rms_norm_forward(Stream&, Tensor y, Tensor rstd, Tensor x, Tensor w,
                                float epsilon) = 0;
  // dx as `dx_write` says; dw (C) fp32 as `parameter_write` says.
  virtual void rms_norm_backward(Stream&, Tensor dx, Write dx_write, Tensor dw,
                                 Write parameter_write, Tensor dy, Tensor x, Tensor w,
                                 Tensor rstd) = 0;
  // The same of each head of queries and keys in qkv (N, (NH + 2 NKV) D) by itself; values are
  // copied. wq, wk (D); rstd (N, NH + NKV) fp32.
  virtual void head_norm_forward(Stream&, Tensor y, Tensor rstd, Tensor x, Tensor wq, Tensor wk,
                                 HeadCounts, float epsilon) = 0;
  // In place: `gradient` holds dy and becomes dx. dwq, dwk (D) fp32.
  virtual void head_norm_backward(Stream&, Tensor gradient, Tensor dwq, Tensor dwk,
                                  Write parameter_write, Tensor x, Tensor wq, Tensor wk,
                                  Tensor rstd, HeadCounts) = 0;

  // table (N, D) fp32: factor * cos(position * frequency) for D / 2 frequencies, then factor * sin,
  // from angles in fp64. positions (N) int32. The frequencies lie in host memory that stays valid
  // until this has run.
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
  // In place: numbers of x (B, ...) are kept and multiplied, or become 0. Its gradient is the same
  // of the gradient.
  virtual void dropout(Stream&, Tensor x, const Dropout&) = 0;

  // y (N, C) = wte[tokens[i]] + wpe[positions[i]]; tokens, positions (N) int32; wpe, positions may
  // be empty.
  virtual void embedding_forward(Stream&, Tensor y, Tensor tokens, Tensor positions, Tensor wte,
                                 Tensor wpe) = 0;
  // dtable (V, C) fp32: row v = sum of dy rows whose index is v, in row order; other rows 0 (Store)
  // or unchanged.
  virtual void embedding_backward(Stream&, Tensor dtable, Tensor dy, Tensor indices, Write) = 0;

  // out (B, T, NH D), log_sum_exp (B, NH, T) fp32 of qkv (B, T, (NH + 2 NKV) D): queries, keys,
  // values side by side, heads inside each. Never stores T x T scores for all heads.
  virtual void attention_forward(Stream&, Tensor out, Tensor log_sum_exp, Tensor qkv,
                                 const AttentionShape&) = 0;
  // The same of the newest tokens alone, causal: keys and values of qkv go into the cache (B, S,
  // 2 NKV D), whose rows are positions, and queries see what lies there at positions up to their
  // own. positions (B, T) int32 are consecutive in a row and below S. No documents.
  virtual void attention_cached(Stream&, Tensor out, Tensor qkv, Tensor cache, Tensor positions,
                                const AttentionShape&) = 0;
  virtual void attention_backward(Stream&, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out,
                                  Tensor log_sum_exp, const AttentionShape&) = 0;

  // losses (N) fp32 = -log softmax(logits)[target], 0 where target == -100. With `gradient_scale`,
  // logits become their own gradient: (softmax - onehot) * scale, 0 in ignored rows. logits (N, V),
  // targets (N) int32.
  virtual void cross_entropy(Stream&, Tensor losses, Tensor logits, Tensor targets,
                             std::optional<float> gradient_scale) = 0;
  // The same in slices of classes: once over all for the losses, once more for the gradient.
  // logits (N, S) are those of `slice`; statistics (N, 3) fp32: a row's greatest logit, the sum of
  // e^(logit - greatest), the logit of its target, over the slices so far. Slices come in order:
  // the first begins, the last writes losses (N) fp32.
  virtual void cross_entropy_statistics(Stream&, Tensor losses, Tensor statistics, Tensor logits,
                                        Tensor targets, ClassSlice slice) = 0;
  // logits (N, S) become their own gradient, given the statistics of all slices; in any order.
  virtual void cross_entropy_gradient(Stream&, Tensor logits, Tensor statistics, Tensor targets,
                                      ClassSlice slice, float gradient_scale) = 0;
  // total (1) fp64 = or += the sum of values (N) fp32, in a fixed tree.
  virtual void sum(Stream&, Tensor total, Tensor values, Write) = 0;

  // One range of a finished gradient: gradient (n) fp32, bf16 or fp16 = sums (n) + more_sums (n),
  // fp32, rounded to the type once. With `partials`, squared_norm_pieces() of the result in the
  // same pass. more_sums and partials may be empty.
  virtual void round_gradient(Stream&, Tensor gradient, Tensor sums, Tensor more_sums,
                              Tensor partials) = 0;
  // partials (P) fp64: partial p = sum of squares of gradient elements [p * kPieceElements, ...),
  // each in a fixed tree of 64 lanes. gradient fp32, bf16 or fp16.
  virtual void squared_norm_pieces(Stream&, Tensor partials, Tensor gradient) = 0;

  // An optimizer's step where the state lives on the device: the same bits as cpu_adam's. The
  // coefficients lie in pinned host memory and are read when the kernel runs.
  virtual void adamw(Stream&, const AdamWPlanes& planes, const AdamWCoefficients* coefficients) = 0;
};

/// Elements of a piece: the unit in which gradient norms are summed.
inline constexpr int64_t kPieceElements = 65536;

}  // namespace ebb

// The primitives that models are composed of. Each runs one forward on the tape and records its
// backward.
//
// x is (..., C): all dimensions but the last are rows. A kernel throws ShapeError if the shapes do
// not match. One thread. A user's own primitive is written the same way, with Tape::begin_call,
// output and end_call, and kernels of its own (device/own_kernel.h):
//
//   Variable relu(Tape& tape, Variable x) {
//     tape.begin_call("relu", {});
//     const Variable y = tape.output(x.value.shape, x.value.dtype);
//     tape.end_call([=](const Forward& f) { f.submit(ReluForward{f.value(y), f.value(x)}); },
//                   [=](const Backward& b) {
//                     if (!x.has_gradient()) return;  // an input of the model
//                     const GradientTarget dx = b.input_gradient(x);
//                     b.submit(ReluBackward{dx.sums, b.gradient(y), b.value(x), dx.write});
//                   });
//     return y;
//   }
//
// autograd/gradient_check.h finds mistakes in the backward.
#pragma once

#include <initializer_list>
#include <optional>

#include "autograd/tape.h"

namespace ebb {

/// x w^T (..., OC), plus bias and residual if they are given; w (OC, C), bias (OC). The residual
/// has the shape and type of the result; it may be x.
Variable linear(Tape& tape, Variable x, ParameterId weight, std::optional<ParameterId> bias = {},
                std::optional<Variable> residual = {});
/// The result of linear_activation(). Only one activation_linear() may take it: the backward of a
/// second one throws LogicError. The backward of activation_linear() writes the gradient of
/// `before`, so the gradient of `after` needs no memory of its own.
struct Activated {
  Variable before;
  /// The activation of `before`. No primitive but activation_linear() may take it: its gradient
  /// would be lost, which is not checked.
  Variable after;
  Activation kind;
};
/// The activation of x w^T + bias; w (OC, C), bias (OC).
Activated linear_activation(Tape& tape, Variable x, ParameterId weight,
                            std::optional<ParameterId> bias, Activation kind);
/// linear() of x.after.
Variable activation_linear(Tape& tape, const Activated& x, ParameterId weight,
                           std::optional<ParameterId> bias = {},
                           std::optional<Variable> residual = {});
/// The norm of each row; weight (C), bias (C).
Variable layer_norm(Tape& tape, Variable x, ParameterId weight, ParameterId bias,
                    float epsilon = 1e-5f);
Variable rms_norm(Tape& tape, Variable x, ParameterId weight, float epsilon);
/// RMS norm of each head of queries and keys in qkv (..., (NH + 2 NKV) D), with weights (D).
Variable head_norm(Tape& tape, Variable qkv, ParameterId query_weight, ParameterId key_weight,
                   HeadCounts heads, float epsilon);
/// The table (N, D) fp32 for rotary(), computed once for all layers: `factor` times the cosines and
/// sines of positions (N elements of any shape, int32) times D / 2 frequencies. The frequencies are
/// in host memory and must outlive the step.
Variable rotary_table(Tape& tape, Tensor positions, std::span<const double> frequencies,
                      double factor);
/// Rotates the first num_heads heads of D columns of x (..., C) in place; table (N, D) of
/// rotary_table(). The primitive captures the tensor, so the table must exist until the backward
/// has run. REQUIRES: x was made in the same layer, by a primitive whose backward does not read it,
/// and nothing else uses x.
Variable rotary(Tape& tape, Variable x, Tensor table, int64_t num_heads);
/// silu(gate) * up: x (..., 2F), gate before up -> (..., F).
Variable swiglu(Tape& tape, Variable x);
/// The activation of each element of x.
Variable activation(Tape& tape, Variable x, Activation kind);
/// a + b, of one shape and type.
Variable add(Tape& tape, Variable a, Variable b);
/// a b element by element, of one shape and type. a and b may be the same value.
Variable multiply(Tape& tape, Variable a, Variable b);
/// The softmax of each row of x (..., C).
Variable softmax(Tape& tape, Variable x);
/// The columns of all parts one after the other: parts (..., Ci) of one type, which differ only in
/// their last dimension -> (..., sum of Ci). Throws ShapeError for no part, or more than
/// kMostParts.
Variable concatenate(Tape& tape, std::initializer_list<Variable> parts);
inline constexpr size_t kMostParts = 4;
/// Drops elements of x (B, ...) in place; the first dimension counts the samples. Returns x where
/// the tape has no dropout. Each place in each layer has a `site` of its own (Tape::dropout_at());
/// the dropout inside of attention (AttentionShape::dropout) has one as well. REQUIRES: as
/// rotary().
Variable dropout(Tape& tape, Variable x, uint32_t site);
/// wte[tokens] + wpe[positions]: tokens, positions (B, T) int32; result (B, T, C) of `type`, which
/// is the type of the weights; C is `channels`.
Variable embedding(Tape& tape, Tensor tokens, Tensor positions, ParameterId wte, ParameterId wpe,
                   int64_t channels, DType type);
/// The same without positions.
Variable embedding(Tape& tape, Tensor tokens, ParameterId table, int64_t channels, DType type);
/// qkv (B, T, (NH + 2 NKV) D) -> (B, T, NH D). REQUIRES: qkv is not an input of the model, and no
/// other primitive takes it.
Variable attention(Tape& tape, Variable qkv, const AttentionShape& shape);
/// The same for T new tokens of each sequence after earlier ones. The persistent input `cache` (B,
/// S, 2 NKV D) has room for S positions and holds the keys and values of the earlier tokens. Those
/// of the new tokens are written to it at their positions (B, T) int32. REQUIRES: the tape does not
/// train; the shape is causal, without documents and dropout; the cache has the type of qkv.
Variable attention(Tape& tape, Variable qkv, const AttentionShape& shape, Tensor cache,
                   Tensor positions);
/// Adds the cross-entropy of logits (N, V) against targets (N) int32 to the losses of the step. The
/// loss of a row with the target -100 is 0. REQUIRES: the logits are not an input of the model, and
/// no other primitive takes them.
void cross_entropy(Tape& tape, Variable logits, Tensor targets);
/// Adds the mean squared error of each row of x (..., C) to the losses of the step. The targets
/// have the shape of x and any float type. MicroBatch::num_targets is the number of rows; the loss
/// of the step is then the mean over all elements.
void mean_squared_error(Tape& tape, Variable x, Tensor targets);

/// How a classifier is cut into slices. Only shapes decide, so that the bits do not depend on a
/// budget.
struct ClassifierCut {
  /// A slice of the weight and its fp32 gradient sum are on the device at the same time: 64 Mi
  /// elements in bf16 take 128 + 256 MiB. With more than one slice every logit is computed twice,
  /// which is a third more arithmetic in the head. GPT-2's 39 Mi elements are one slice; 128k x
  /// 8192 are 16, which with their activations need less than 1 GiB.
  int64_t weight_elements = int64_t{1} << 26;
  LogitsShape logits = {};
  /// Rows of a (vocabulary, channels) weight in a slice.
  int64_t weight_rows(int64_t vocabulary, int64_t channels) const;
  /// Rows of logits that exist at a time, at least one, for a slice of num_classes classes.
  int64_t logits_rows(int64_t num_rows, int64_t num_classes) const;
};
/// cross_entropy() of x w^T + bias; x (..., C) with N rows, w (V, C), bias (V), targets with N
/// elements; V is `vocabulary`. It is computed in slices of rows, so that the logits (N, V) never
/// exist whole. Where w is larger than one slice of `cut`, it is computed in slices of the
/// vocabulary as well, each in a call and a stage of its own (Tape::run_in_stages). The
/// gradients of x, w and bias are computed before the backward begins. Without `cut`, slices have
/// the default size, and the logits have the shape that the device's kernels want
/// (Kernels::logits_shape()).
void classifier_cross_entropy(Tape& tape, Variable x, ParameterId weight, int64_t vocabulary,
                              Tensor targets, std::optional<ClassifierCut> cut = {},
                              std::optional<ParameterId> bias = {});

}  // namespace ebb

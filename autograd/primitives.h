// The primitives that models are composed of. Each runs one forward on the tape and records its
// backward.
//
// x is (..., C): leading dimensions are rows. Weights are parameters by id; shapes are checked by
// the kernels. A user's own primitive is written the same way, with Tape::begin_call, output and
// end_call:
//
//   Variable relu(Tape& tape, Variable x) {
//     tape.begin_call("relu", {});
//     const Variable y = tape.output(x.value.shape, x.value.dtype);
//     tape.end_call([=](const Forward& f) { my_relu(f.stream(), f.value(y), f.value(x)); },
//                   [=](const Backward& b) {
//                     const GradientTarget dx = b.input_gradient(x);
//                     my_relu_backward(b.stream(), dx, b.gradient(y), b.value(x));
//                   });
//     return y;
//   }
#pragma once

#include <optional>

#include "autograd/tape.h"

namespace ebb {

/// x w^T + bias; w (OC, C), bias (OC).
Variable linear(Tape& tape, Variable x, ParameterId weight, std::optional<ParameterId> bias = {});
/// The result of linear_activation(). Only activation_linear() may take it: its backward computes
/// the gradient of both, so that the gradient between them is never stored.
struct Activated {
  Variable before;
  Variable after;  ///< the activation of `before`; it has no gradient of its own
  Activation kind;
};
Activated linear_activation(Tape& tape, Variable x, ParameterId weight,
                            std::optional<ParameterId> bias, Activation kind);
Variable activation_linear(Tape& tape, const Activated& x, ParameterId weight,
                           std::optional<ParameterId> bias = {});
Variable layer_norm(Tape& tape, Variable x, ParameterId weight, ParameterId bias,
                    float epsilon = 1e-5f);
Variable rms_norm(Tape& tape, Variable x, ParameterId weight, float epsilon);
/// RMS norm of each head of queries and keys in qkv (..., (NH + 2 NKV) D), with weights (D).
Variable head_norm(Tape& tape, Variable qkv, ParameterId query_weight, ParameterId key_weight,
                   HeadCounts heads, float epsilon);
/// The table (N, D) fp32 for rotary(), computed once for all layers: the cosines and sines of
/// positions (N) times D / 2 frequencies. The frequencies must outlive the step.
Variable rotary_table(Tape& tape, Tensor positions, std::span<const double> frequencies,
                      double factor);
/// Rotates the first num_heads heads of x (..., C) in place. REQUIRES: x was made in the same
/// layer, by a primitive whose backward does not read it, and nothing else uses x.
Variable rotary(Tape& tape, Variable x, Tensor table, int64_t num_heads);
/// silu(gate) * up: x (..., 2F), gate before up -> (..., F).
Variable swiglu(Tape& tape, Variable x);
Variable activation(Tape& tape, Variable x, Activation kind);
Variable add(Tape& tape, Variable a, Variable b);
/// Drops elements of x (B, ...) in place; one row is one sample. Returns x where the tape has no
/// dropout. Each place of a model has a `site` of its own; the dropout inside of attention
/// (AttentionShape::dropout) has one as well. REQUIRES: as rotary().
Variable dropout(Tape& tape, Variable x, uint32_t site);
/// wte[tokens] + wpe[positions]: tokens, positions (B, T) int32; result (B, T, C) of `type`.
Variable embedding(Tape& tape, Tensor tokens, Tensor positions, ParameterId wte, ParameterId wpe,
                   int64_t channels, DType type);
/// The same without positions.
Variable embedding(Tape& tape, Tensor tokens, ParameterId table, int64_t channels, DType type);
/// qkv (B, T, (NH + 2 NKV) D) -> (B, T, NH D). REQUIRES: qkv is not an input of the model, and
/// nothing else uses it.
Variable attention(Tape& tape, Variable qkv, const AttentionShape& shape);
/// The same for new tokens after earlier ones. The persistent input `cache` (B, S, 2 NKV D) holds
/// the keys and values of earlier tokens, and those of the new tokens are written to it at their
/// positions (B, T). REQUIRES: the tape does not train.
Variable attention(Tape& tape, Variable qkv, const AttentionShape& shape, Tensor cache,
                   Tensor positions);
/// Adds the cross-entropy of logits (N, V) against targets (N) int32, -100 = ignored, to the loss.
/// REQUIRES: the logits are not an input of the model, and nothing else uses them.
void cross_entropy(Tape& tape, Variable logits, Tensor targets);

/// How a classifier is cut into slices. Only shapes decide, so that the bits do not depend on a
/// budget.
struct ClassifierCut {
  /// A slice of the weight and its fp32 gradient sum are on the device at the same time: 64 Mi
  /// elements in bf16 take 128 + 256 MiB. With more than one slice every logit is computed twice,
  /// which is a third more arithmetic in the head. GPT-2's 39 Mi elements are one slice; 128k x
  /// 8192 are 16, which with their activations need less than 1 GiB.
  int64_t weight_elements = int64_t{1} << 26;
  int64_t logits_elements = int64_t{1} << 24;
  /// Rows of a (vocabulary, channels) weight in a slice.
  int64_t weight_rows(int64_t vocabulary, int64_t channels) const;
  /// Rows of logits that exist at a time, for a slice of num_classes classes.
  int64_t logits_rows(int64_t num_rows, int64_t num_classes) const;
};
/// Cross-entropy of x w^T + bias; w (V, C), bias (V). It is computed in slices of rows, so that the
/// logits (N, V) never exist whole. Where w is large, it is computed in slices of the vocabulary as
/// well, each in a call and a stage of its own (Tape::run_in_stages). The gradients of x and w are
/// computed before the backward begins.
void classifier_cross_entropy(Tape& tape, Variable x, ParameterId weight, int64_t vocabulary,
                              Tensor targets, const ClassifierCut& cut = {},
                              std::optional<ParameterId> bias = {});

}  // namespace ebb

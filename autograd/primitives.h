// The primitives that models are composed of. Each runs one forward on the tape and records its
// backward.
//
// x is (..., C): leading dimensions are rows. Weights are parameters by id; shapes are checked by
// the kernels. A user's own primitive is written the same way, with Tape::begin_call, output and
// end_call.
#pragma once

#include <optional>

#include "autograd/tape.h"

namespace ebb {

/// x w^T + bias; w (OC, C), bias (OC).
Variable linear(Tape& tape, Variable x, ParameterId weight, std::optional<ParameterId> bias = {});
/// An activation behind a linear layer and before another, which alone may take it: the second's
/// backward goes through both, so that neither needs the gradient between them.
struct Activated {
  Variable before;
  Tensor value;  ///< the activation of it
  Activation kind;
};
Activated linear_activation(Tape& tape, Variable x, ParameterId weight,
                            std::optional<ParameterId> bias, Activation kind);
Variable activation_linear(Tape& tape, const Activated& x, ParameterId weight,
                           std::optional<ParameterId> bias = {});
Variable layer_norm(Tape& tape, Variable x, ParameterId weight, ParameterId bias,
                    float epsilon = 1e-5f);
Variable rms_norm(Tape& tape, Variable x, ParameterId weight, float epsilon);
/// Each head of queries and keys in qkv (..., (NH + 2 NKV) D) by itself, weights (D).
Variable head_norm(Tape& tape, Variable qkv, ParameterId query_weight, ParameterId key_weight,
                   HeadCounts heads, float epsilon);
/// (N, D) fp32 for rotary(), made once for all layers: the cosines and sines of positions (N) times
/// D / 2 frequencies, which must outlive the step.
Variable rotary_table(Tape& tape, Tensor positions, std::span<const double> frequencies,
                      double factor);
/// Coroutines the first num_heads heads of x (..., C) in place. REQUIRES: x was made in the same
/// block, by a primitive whose backward does not read it, and is used here only.
Variable rotary(Tape& tape, Variable x, Tensor table, int64_t num_heads);
/// silu(gate) * up: x (..., 2F), gate before up -> (..., F).
Variable swiglu(Tape& tape, Variable x);
Variable activation(Tape& tape, Variable x, Activation kind);
Variable add(Tape& tape, Variable a, Variable b);
/// x (B, ...) of one sample a row, in place; itself where the tape has no dropout. Each place of a
/// model has a site of its own, and so have those of attention (AttentionShape::dropout).
/// REQUIRES: as rotary().
Variable dropout(Tape& tape, Variable x, uint32_t site);
/// wte[tokens] + wpe[positions]: tokens, positions (B, T) int32; result (B, T, C) of `type`.
Variable embedding(Tape& tape, Tensor tokens, Tensor positions, ParameterId wte, ParameterId wpe,
                   int64_t channels, DType type);
/// The same without positions.
Variable embedding(Tape& tape, Tensor tokens, ParameterId table, int64_t channels, DType type);
/// qkv (B, T, (NH + 2 NKV) D) -> (B, T, NH D). REQUIRES: qkv is no input, and used here only.
Variable attention(Tape& tape, Variable qkv, const AttentionShape& shape);
/// The same of the newest tokens alone, which also see what was given before: the cache (B, S,
/// 2 NKV D), an input that is kept, takes their keys and values at their positions (B, T).
/// REQUIRES: no training.
Variable attention(Tape& tape, Variable qkv, const AttentionShape& shape, Tensor cache,
                   Tensor positions);
/// Adds the cross-entropy of logits (N, V) against targets (N) int32, -100 = ignored, to the loss.
/// REQUIRES: logits are no input, and used here only.
void cross_entropy(Tape& tape, Variable logits, Tensor targets);

/// How a classifier is cut: by shapes alone, so that its bits depend on no budget.
struct ClassifierCut {
  /// A slice of the weight needs itself and its fp32 sum on the device at once: 64 Mi elements in
  /// bf16 are 128 + 256 MiB. Two slices more than halve what one moment needs, but make every logit
  /// twice, a third more arithmetic in the head: GPT-2's 39 Mi stay whole, 128k x 8192 falls into
  /// 16, so that with its activations it needs less than 1 GiB.
  int64_t weight_elements = int64_t{1} << 26;
  int64_t logits_elements = int64_t{1} << 24;
  /// Rows of a (vocabulary, channels) weight in a slice.
  int64_t weight_rows(int64_t vocabulary, int64_t channels) const;
  /// Rows of logits at once, of a slice with so many classes.
  int64_t logits_rows(int64_t num_rows, int64_t num_classes) const;
};
/// The same of x w^T + bias; w (V, C), bias (V). In slices of rows, so that (N, V) logits never
/// exist whole; where w is large also in slices of the vocabulary, each a moment of its own. Its
/// backward is done at once: it makes x's gradient and w's in its own moments.
void classifier_cross_entropy(Tape& tape, Variable x, ParameterId weight, int64_t vocabulary,
                              Tensor targets, const ClassifierCut& cut = {},
                              std::optional<ParameterId> bias = {});

}  // namespace ebb

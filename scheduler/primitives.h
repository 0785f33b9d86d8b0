// The primitives that models are composed of. Each runs one forward on the tape and records its
// backward.
//
// x is (..., C): leading dimensions are rows. Weights are parameters by id; shapes are checked by
// the kernels. A user's own primitive is written the same way, with Tape::begin_moment, output and
// end_moment.
#pragma once

#include <optional>

#include "scheduler/tape.h"

namespace ebb {

/// x w^T + bias; w (OC, C), bias (OC).
Variable linear(Tape& tape, Variable x, ParameterId weight, std::optional<ParameterId> bias = {});
Variable layer_norm(Tape& tape, Variable x, ParameterId weight, ParameterId bias,
                    float epsilon = 1e-5f);
Variable activation(Tape& tape, Variable x, Activation kind);
Variable add(Tape& tape, Variable a, Variable b);
/// wte[tokens] + wpe[positions]: tokens, positions (B, T) int32; result (B, T, C) of `type`.
Variable embedding(Tape& tape, Tensor tokens, Tensor positions, ParameterId wte, ParameterId wpe,
                   int64_t channels, DType type);
/// qkv (B, T, 3C) -> (B, T, C). REQUIRES: qkv is no input, and used here only.
Variable attention(Tape& tape, Variable qkv, const AttentionShape& shape);
/// Adds the cross-entropy of logits (N, V) against targets (N) int32, -100 = ignored, to the loss.
/// REQUIRES: logits are no input, and used here only.
void cross_entropy(Tape& tape, Variable logits, Tensor targets);
/// The same of x w^T, in slices of rows, so that (N, V) logits never exist whole; w (V, C). Its
/// backward is done at once: it makes x's gradient and w's in the same moment.
void classifier_cross_entropy(Tape& tape, Variable x, ParameterId weight, int64_t vocabulary,
                              Tensor targets);
/// Rows of logits in a slice: about 16 Mi elements, a function of the shape alone.
int64_t classifier_slice_rows(int64_t num_rows, int64_t vocabulary);

}  // namespace ebb

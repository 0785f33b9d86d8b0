// What the transformers of this folder share: the inputs of a micro-batch, attention with its
// cache, pairs of weight and bias, and the arithmetic of a step. Functions have no state.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "autograd/model.h"
#include "autograd/primitives.h"

namespace ebb {

/// The shape of a micro-batch. Not both `packed` and a cache.
struct MicroBatchShape {
  int64_t batch_size = 1;    ///< sequences (B)
  int64_t length = 1;        ///< tokens of a sequence (T)
  bool packed = false;       ///< a sequence has several documents: input document_starts
  int64_t cache_length = 0;  ///< positions in the cache of keys and values; 0: no cache
};

/// The standard deviation of initial weights.
inline constexpr float kInitialDeviation = 0.02f;

/// The parameters of a projection or of a layer norm.
struct WeightAndBias {
  ParameterId weight = 0, bias = 0;
};
/// Declares `name`.weight (rows, columns), with initial values of this standard deviation, and
/// `name`.bias (rows), with zeros.
WeightAndBias declare_projection(Parameters& parameters, const std::string& name, int64_t rows,
                                 int64_t columns, float standard_deviation);
/// Declares `name`.weight (channels) with ones, and `name`.bias (channels) with zeros.
WeightAndBias declare_norm(Parameters& parameters, const std::string& name, int64_t channels);
Variable linear(Tape& tape, Variable x, const WeightAndBias& projection);
/// residual + dropout(x w^T + bias), with the dropout of this site (Tape::dropout_at()). Without
/// dropout this is one LinearForward. Of an Activated x, x.after is multiplied.
Variable add_projection(Tape& tape, Variable residual, Variable x, const WeightAndBias& projection,
                        uint32_t site);
Variable add_projection(Tape& tape, Variable residual, const Activated& x,
                        const WeightAndBias& projection, uint32_t site);
Variable layer_norm(Tape& tape, Variable x, const WeightAndBias& norm, float epsilon);

/// The inputs of a decoder: tokens, positions, targets, each (B, T) int32. Then document_starts (B,
/// T) int32 for packed documents, or the persistent cache of keys and values (layers, B, cache
/// length, `cache_channels`) of `dtype`. `cache_channels` is 2 NKV D.
std::vector<InputSpec> decoder_inputs(const MicroBatchShape& shape, DType dtype, int64_t num_layers,
                                      int64_t cache_channels);
/// The attention of one layer of a decoder with these inputs, over qkv: attention() with the cache
/// if there is one. The function sets the dropout and the document starts of `heads`; `site` is the
/// site of the dropout of the attention probabilities (Tape::dropout_at()).
Variable decoder_attention(Tape& tape, std::span<const Tensor> inputs, const MicroBatchShape& shape,
                           uint32_t layer, Variable qkv, AttentionShape heads, uint32_t site);

/// The model FLOPs of a training step over `tokens` tokens, without recomputation: 6 * tokens *
/// (matrix_elements + 2 * num_layers * channels * num_seen). `matrix_elements` is the number of
/// elements of all parameters, except for tables whose rows are only looked up. `channels` is NH D.
/// Each token counts as if it attended to `num_seen` tokens, also under a causal mask.
double transformer_flops(double matrix_elements, int64_t num_layers, int64_t channels,
                         int64_t num_seen, uint64_t tokens);

}  // namespace ebb

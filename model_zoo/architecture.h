// A model of any architecture, described by its configuration. Presets and config.json are such
// configurations. Pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <variant>

#include "autograd/model.h"
#include "model_zoo/bert.h"
#include "model_zoo/gpt2.h"
#include "model_zoo/llama.h"
#include "model_zoo/transformer.h"

namespace ebb {

using ModelConfig = std::variant<Gpt2Config, LlamaConfig, BertConfig>;

/// `dtype` is the type of weights and activations. Throws ConfigError under the same conditions as
/// the constructor of the architecture, and for a cache if the architecture does not generate.
std::unique_ptr<const Model> create_model(const ModelConfig& config, const MicroBatchShape& shape,
                                          DType dtype);

/// The number of elements of all parameters. A tied weight counts once.
uint64_t num_parameters(const ModelConfig& config);
/// The model FLOPs of a training step over `tokens` tokens in sequences of `length` tokens, without
/// recomputation (transformer_flops()).
double training_flops(const ModelConfig& config, uint64_t tokens, int64_t length);

/// "gpt2", "llama", "bert".
std::string_view architecture_of(const ModelConfig& config);

/// The sizes that all architectures have. `num_heads` counts the heads of queries.
struct ModelSizes {
  int64_t vocabulary, channels, num_layers, num_heads, max_positions;
};
ModelSizes sizes_of(const ModelConfig& config);

/// Whether the target at a position is the next token. If not, the data of training must contain
/// labels.
bool predicts_next_token(const ModelConfig& config);

}  // namespace ebb

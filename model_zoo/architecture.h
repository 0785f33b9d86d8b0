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

/// Throws ConfigError under the same conditions as the constructor of the architecture.
std::unique_ptr<const Model> create_model(const ModelConfig& config, const MicroBatchShape& shape,
                                          DType dtype);

uint64_t num_parameters(const ModelConfig& config);
double training_flops(const ModelConfig& config, uint64_t tokens, int64_t length);

/// "gpt2", "llama", "bert".
std::string_view architecture_of(const ModelConfig& config);

/// The sizes that all architectures have.
struct ModelSizes {
  int64_t vocabulary, channels, num_layers, num_heads, max_positions;
};
ModelSizes sizes_of(const ModelConfig& config);

/// Whether the target at a position is the next token. Otherwise training needs labels.
bool predicts_next_token(const ModelConfig& config);

}  // namespace ebb

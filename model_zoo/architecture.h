// Any of the architectures by its configuration: what presets name and config.json describes.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <variant>

#include "autograd/model.h"
#include "model_zoo/bert.h"
#include "model_zoo/gpt2.h"
#include "model_zoo/llama.h"

namespace ebb {

using ModelConfig = std::variant<Gpt2Config, LlamaConfig, BertConfig>;

/// What a micro-batch is made of.
struct MicroBatchShape {
  int64_t batch_size = 1;
  int64_t length = 1;
  bool packed = false;       ///< rows hold several documents: there is an input document_starts
  int64_t cache_length = 0;  ///< for generation: positions in a cache of keys and values, kept
};

/// Throws ConfigError as the architecture's constructor does.
std::unique_ptr<const Model> create_model(const ModelConfig& config, const MicroBatchShape& shape,
                                          DType dtype);

uint64_t num_parameters(const ModelConfig& config);
double training_flops(const ModelConfig& config, uint64_t tokens, int64_t length);

/// "gpt2", "llama", "bert".
std::string_view architecture_of(const ModelConfig& config);

/// What all of them have.
struct ModelSizes {
  int64_t vocabulary, channels, num_layers, num_heads, max_positions;
};
ModelSizes sizes_of(const ModelConfig& config);

/// Is its target at a position the next token? Otherwise somebody must give labels.
bool predicts_next_token(const ModelConfig& config);

}  // namespace ebb

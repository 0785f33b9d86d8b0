// GPT-2: learned positions, pre-norm, tanh GELU, tied head (Radford et al. 2019). Thread-safe:
// immutable after construction.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autograd/model.h"

namespace ebb {

struct Gpt2Config {
  int64_t vocabulary = 50257;
  int64_t max_positions = 1024;
  int64_t channels = 768;
  int64_t num_layers = 12;
  int64_t num_heads = 12;
  std::optional<int64_t> mlp_channels = {};  ///< nullopt: 4 * channels
  float layer_norm_epsilon = 1e-5f;

  int64_t inner_channels() const { return mlp_channels.value_or(4 * channels); }
};

/// The number of parameters of a model with this configuration.
uint64_t num_parameters(const Gpt2Config& config);
/// The model FLOPs of a training step over `tokens` tokens in sequences of `length`: 6 N per token
/// plus attention, without recomputation.
double training_flops(const Gpt2Config& config, uint64_t tokens, int64_t length);

/// Inputs: tokens, positions, targets, each (B, T) int32. A packed model also has the input
/// document_starts (B, T) int32 (AttentionShape), and positions restart with each document. With
/// `cache_length` > 0 there is a cache of keys and values for this number of positions, which is an
/// input that keeps its content. Then the tokens are the newest of each row and attend to all
/// earlier ones; training is not possible.
class Gpt2 : public Model {
 public:
  /// Throws ConfigError for invalid sizes (heads do not divide the channels, T exceeds the
  /// positions, ...).
  Gpt2(const Gpt2Config& config, int64_t micro_batch_size, int64_t length, DType dtype,
       bool packed = false, int64_t cache_length = 0);

  const Parameters& parameters() const override { return parameters_; }
  std::vector<InputSpec> inputs() const override;
  void forward(Tape& tape, std::span<const Tensor> inputs) const override;
  /// The output (B, T, C) of the last norm. head_weight() is the matrix (V, C) that maps this
  /// output to logits.
  Variable hidden(Tape& tape, std::span<const Tensor> inputs) const;
  ParameterId head_weight() const { return wte_; }
  const Gpt2Config& config() const { return config_; }

 private:
  struct Layer {
    ParameterId norm1_weight, norm1_bias, qkv_weight, qkv_bias, projection_weight, projection_bias;
    ParameterId norm2_weight, norm2_bias, up_weight, up_bias, down_weight, down_bias;
    uint32_t first_dropout;  ///< of three: attention weights and both results
  };
  /// The other inputs of a layer. They are addresses, so that they fit the closure of a layer.
  struct Shared {
    std::byte* document_starts;
    std::byte* positions;
    std::byte* cache;  ///< of the layer; null: none
  };
  Variable run_layer(Tape& tape, const Layer& layer, const Shared& shared, Variable x) const;
  Variable attend(Tape& tape, const Layer& layer, const Shared& shared, Variable qkv) const;
  void declare();

  Gpt2Config config_;
  int64_t micro_batch_size_;
  int64_t length_;
  DType dtype_;
  bool packed_;
  int64_t cache_length_;
  Parameters parameters_;
  ParameterId wte_ = 0, wpe_ = 0, final_norm_weight_ = 0, final_norm_bias_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace ebb

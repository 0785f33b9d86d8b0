// GPT-2: learned positions, pre-norm, tanh GELU, tied head (Radford et al. 2019). Thread-safe:
// immutable after construction.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autograd/model.h"
#include "model_zoo/transformer.h"

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
  Variable begin(Tape& tape, std::span<const Tensor> inputs) const override;
  uint32_t num_layers() const override { return static_cast<uint32_t>(layers_.size()); }
  Variable layer(Tape& tape, std::span<const Tensor> inputs, uint32_t i, Variable x) const override;
  void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const override;
  /// The output (B, T, C) of the last norm, from the value x after the last layer. head_weight() is
  /// the matrix (V, C) that maps this output to logits.
  Variable head_input(Tape& tape, Variable x) const;
  ParameterId head_weight() const { return wte_; }
  const Gpt2Config& config() const { return config_; }

 private:
  struct Layer {
    WeightAndBias norm1, qkv, projection, norm2, up, down;
    uint32_t first_dropout;  ///< of three: attention weights and both results
  };
  Layer declare_layer(int64_t index);

  Gpt2Config config_;
  MicroBatchShape shape_;
  DType dtype_;
  Parameters parameters_;
  ParameterId wte_ = 0, wpe_ = 0;
  WeightAndBias final_norm_;
  std::vector<Layer> layers_;
};

}  // namespace ebb

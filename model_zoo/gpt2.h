// GPT-2: learned positions, pre-norm, tanh GELU, tied head (Radford et al. 2019). Thread-safe:
// immutable after construction.
#pragma once

#include <cstdint>
#include <optional>
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

/// The number of elements of all parameters of a model with this configuration.
uint64_t num_parameters(const Gpt2Config& config);
/// The model FLOPs of a training step over `tokens` tokens in sequences of `length` tokens: for
/// each token 6 for each parameter element, but none for position embeddings, plus those of
/// attention. Recomputation does not count.
double training_flops(const Gpt2Config& config, uint64_t tokens, int64_t length);

/// Inputs: tokens, positions, targets, each (B, T) int32, where B is the micro-batch size and T is
/// `length`. A packed model also has the input document_starts (B, T) int32 (AttentionShape), and
/// positions restart with each document.
///
/// With `cache_length` > 0 the model is for generation, and training is not possible. It has one
/// more input, the cache of keys and values (layers, B, cache_length, 2 * channels), whose content
/// stays from one forward to the next. The T tokens of a row then follow those whose keys and
/// values are in the cache, and attend to all of them.
class Gpt2 : public Model {
 public:
  /// `dtype`: of the activations and of the cache. Throws ConfigError for invalid sizes (heads do
  /// not divide the channels, T exceeds the positions, ...), and for a packed model with a cache.
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
    /// Sites of dropout, in order: attention weights, result of attention, result of the MLP.
    uint32_t first_dropout;
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

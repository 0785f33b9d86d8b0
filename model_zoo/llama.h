// The Llama family: RMSNorm, rotary positions, SwiGLU, grouped-query attention, and optional biases
// (Touvron et al. 2023). It includes Llama 2, 3, 3.1 and 3.2, Mistral, Qwen2 and Qwen3.
// Thread-safe: immutable after construction.
//
// Parameters have the names of Hugging Face, but projections with the same input are one parameter:
// self_attn.qkv contains the rows of q, k and v, and mlp.gate_up those of gate and up.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "autograd/model.h"
#include "model_zoo/rotary.h"
#include "model_zoo/transformer.h"

namespace ebb {

struct LlamaConfig {
  int64_t vocabulary = 32000;
  int64_t channels = 4096;
  int64_t num_layers = 32;
  int64_t num_heads = 32;
  int64_t num_kv_heads = 32;
  int64_t head_dim = 128;
  int64_t mlp_channels = 11008;
  int64_t max_positions = 4096;
  float norm_epsilon = 1e-5f;
  bool tied_head = false;
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  ///< each head of queries and keys is normalised (Qwen3)
  Rotary rotary = {};
  /// A token attends to itself and to sliding_window - 1 tokens before it (Mistral); nullopt: all.
  std::optional<int64_t> sliding_window = {};

  int64_t query_channels() const { return num_heads * head_dim; }
  int64_t qkv_channels() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
};

/// The number of elements of all parameters of a model with this configuration.
uint64_t num_parameters(const LlamaConfig& config);
/// The model FLOPs of a training step over `tokens` tokens in sequences of `length` tokens, without
/// recomputation (transformer_flops()).
double training_flops(const LlamaConfig& config, uint64_t tokens, int64_t length);

/// Inputs: tokens, positions, targets, each (B, T) int32, where B is the micro-batch size and T is
/// `length`. A packed model also has the input document_starts (B, T) int32 (AttentionShape), and
/// positions restart with each document.
///
/// With `cache_length` > 0 the model is for generation, and training is not possible. It has one
/// more input, the cache of keys and values (layers, B, cache_length, 2 * num_kv_heads * head_dim),
/// whose content stays from one forward to the next. The T tokens of a row then follow those whose
/// keys and values are in the cache, and attend to all of them, or to those in the sliding window.
class Llama : public Model {
 public:
  /// `dtype`: of the activations and of the cache. Throws ConfigError for invalid sizes, and for a
  /// packed model with a cache.
  Llama(const LlamaConfig& config, int64_t micro_batch_size, int64_t length, DType dtype,
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
  ParameterId head_weight() const { return head_; }
  const LlamaConfig& config() const { return config_; }

 private:
  struct Layer {
    ParameterId input_norm, qkv, output, mlp_norm, gate_up, down;
    std::optional<ParameterId> qkv_bias, output_bias, gate_up_bias, down_bias, q_norm, k_norm;
  };
  Variable attend(Tape& tape, std::span<const Tensor> inputs, uint32_t i, Variable x) const;
  Layer declare_layer(int64_t index);

  LlamaConfig config_;
  MicroBatchShape shape_;
  DType dtype_;
  std::vector<double> frequencies_;
  Parameters parameters_;
  ParameterId embedding_ = 0, final_norm_ = 0, head_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace ebb

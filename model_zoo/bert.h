// BERT with its masked-language-model head: learned positions, token types, bidirectional
// attention, post-norm, exact GELU (Devlin et al. 2018). Thread-safe: immutable after construction.
//
// Parameters have the names of Hugging Face, but attention.self.qkv contains the rows of query, key
// and value. The decoder is the word embedding with a bias of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/model.h"
#include "model_zoo/transformer.h"

namespace ebb {

struct BertConfig {
  int64_t vocabulary = 30522;
  int64_t max_positions = 512;
  int64_t num_token_types = 2;
  int64_t channels = 768;
  int64_t num_layers = 12;
  int64_t num_heads = 12;
  int64_t mlp_channels = 3072;
  float norm_epsilon = 1e-12f;
};

/// The number of elements of all parameters of a model with this configuration.
uint64_t num_parameters(const BertConfig& config);
/// The model FLOPs of a training step over `tokens` tokens in sequences of `length` tokens, without
/// recomputation (transformer_flops()).
double training_flops(const BertConfig& config, uint64_t tokens, int64_t length);

/// Inputs: tokens, positions, targets, token_types, document_starts, each (B, T) int32. Padding is
/// a document of its own (AttentionShape), and its targets are -100.
class Bert : public Model {
 public:
  /// Throws ConfigError for invalid sizes.
  Bert(const BertConfig& config, int64_t micro_batch_size, int64_t length, DType dtype);

  const Parameters& parameters() const override { return parameters_; }
  std::vector<InputSpec> inputs() const override;
  Variable begin(Tape& tape, std::span<const Tensor> inputs) const override;
  uint32_t num_layers() const override { return static_cast<uint32_t>(layers_.size()); }
  Variable layer(Tape& tape, std::span<const Tensor> inputs, uint32_t i, Variable x) const override;
  void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const override;
  /// The output (B, T, C) of the transform of the head, from the value x after the last layer.
  /// Logits are this output times the word embedding plus a bias.
  Variable head_input(Tape& tape, Variable x) const;
  ParameterId head_weight() const { return word_embedding_; }
  ParameterId head_bias() const { return head_bias_; }
  const BertConfig& config() const { return config_; }

 private:
  struct Layer {
    WeightAndBias qkv, attention_output, attention_norm, up, down, output_norm;
    uint32_t first_dropout;  ///< of three: attention weights, results of attention and of the MLP
  };
  Layer declare_layer(int64_t index);
  WeightAndBias projection(const std::string& name, int64_t rows, int64_t columns);
  WeightAndBias norm(const std::string& name);

  BertConfig config_;
  MicroBatchShape shape_;
  DType dtype_;
  Parameters parameters_;
  ParameterId word_embedding_ = 0, position_embedding_ = 0, type_embedding_ = 0;
  WeightAndBias embedding_norm_, transform_, transform_norm_;
  std::vector<Layer> layers_;
  ParameterId head_bias_ = 0;
};

}  // namespace ebb

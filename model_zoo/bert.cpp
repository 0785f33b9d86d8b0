#include "model_zoo/bert.h"

#include <fmt/format.h>

#include "model_zoo/sizes.h"

namespace ebb {
namespace {

void check(const BertConfig& c, const MicroBatchShape& shape) {
  check_all_positive({{"the vocabulary", c.vocabulary},
                      {"the number of positions", c.max_positions},
                      {"the number of token types", c.num_token_types},
                      {"the number of channels", c.channels},
                      {"the number of layers", c.num_layers},
                      {"the number of heads", c.num_heads},
                      {"the number of channels inside the MLP", c.mlp_channels},
                      {"the micro-batch size", shape.batch_size}});
  check_model_size(c.num_layers, num_parameters(c));
  check_divides("heads", c.num_heads, "channels", c.channels);
  check_length(shape.length, c.max_positions);
}

}  // namespace

uint64_t num_parameters(const BertConfig& c) {
  const Count channels = c.channels;
  const Count tables = Count(c.vocabulary) + c.max_positions + c.num_token_types + 2;
  const Count matrices = 4 * channels + Count(2) * c.mlp_channels;
  const Count vectors = 9 * channels + c.mlp_channels;  // biases and norms
  const Count head = channels * channels + 3 * channels + c.vocabulary;
  return static_cast<uint64_t>(
      (tables * channels + c.num_layers * (matrices * channels + vectors) + head).value());
}

double training_flops(const BertConfig& c, uint64_t tokens, int64_t length) {
  // Position and type embeddings are lookups without multiplications. The word embedding counts
  // once, as the head.
  const double matrices = static_cast<double>(num_parameters(c)) -
                          static_cast<double>((c.max_positions + c.num_token_types) * c.channels);
  return transformer_flops(matrices, c.num_layers, c.channels, length, tokens);
}

Bert::Bert(const BertConfig& config, int64_t micro_batch_size, int64_t length, DType dtype)
    : config_(config), shape_{micro_batch_size, length}, dtype_(dtype) {
  check(config_, shape_);
  const int64_t c = config_.channels;
  const auto table = [&](std::string_view name, int64_t rows) {
    return parameters_.add(fmt::format("bert.embeddings.{}_embeddings.weight", name), {rows, c},
                           Init::normal(kInitialDeviation));
  };
  word_embedding_ = table("word", config_.vocabulary);
  position_embedding_ = table("position", config_.max_positions);
  type_embedding_ = table("token_type", config_.num_token_types);
  embedding_norm_ = norm("bert.embeddings");
  for (int64_t i = 0; i < config_.num_layers; ++i) layers_.push_back(declare_layer(i));
  transform_ = projection("cls.predictions.transform.dense", c, c);
  transform_norm_ = norm("cls.predictions.transform");
  head_bias_ = parameters_.add("cls.predictions.bias", {config_.vocabulary}, Init::zeros());
}

WeightAndBias Bert::projection(const std::string& name, int64_t rows, int64_t columns) {
  return declare_projection(parameters_, name, rows, columns, kInitialDeviation);
}

WeightAndBias Bert::norm(const std::string& name) {
  return declare_norm(parameters_, name + ".LayerNorm", config_.channels);
}

Bert::Layer Bert::declare_layer(int64_t index) {
  const int64_t c = config_.channels;
  const std::string prefix = fmt::format("bert.encoder.layer.{}.", index);
  return {.qkv = projection(prefix + "attention.self.qkv", 3 * c, c),
          .attention_output = projection(prefix + "attention.output.dense", c, c),
          .attention_norm = norm(prefix + "attention.output"),
          .up = projection(prefix + "intermediate.dense", config_.mlp_channels, c),
          .down = projection(prefix + "output.dense", c, config_.mlp_channels),
          .output_norm = norm(prefix + "output"),
          .first_dropout = 1 + 3 * static_cast<uint32_t>(index)};  // 0: the embeddings
}

std::vector<InputSpec> Bert::inputs() const {
  const Shape shape{shape_.batch_size, shape_.length};
  return {{"tokens", shape, DType::I32},
          {"positions", shape, DType::I32},
          {"targets", shape, DType::I32},
          {"token_types", shape, DType::I32},
          {"document_starts", shape, DType::I32}};
}

Variable Bert::begin(Tape& tape, std::span<const Tensor> inputs) const {
  Variable x = embedding(tape, inputs[0], inputs[1], word_embedding_, position_embedding_,
                         config_.channels, dtype_);
  x = add(tape, x, embedding(tape, inputs[3], type_embedding_, config_.channels, dtype_));
  x = layer_norm(tape, x, embedding_norm_, config_.norm_epsilon);
  return dropout(tape, x, 0);
}

Variable Bert::layer(Tape& tape, std::span<const Tensor> inputs, uint32_t i, Variable x) const {
  const Layer& layer = layers_[i];
  const float epsilon = config_.norm_epsilon;
  Variable a = linear(tape, x, layer.qkv);  // (B, T, 3C)
  a = attention(tape, a,
                {.num_heads = config_.num_heads,
                 .causal = false,
                 .document_starts = inputs[4],
                 .dropout = tape.dropout_at(layer.first_dropout, shape_.batch_size)});
  x = add_projection(tape, x, a, layer.attention_output, layer.first_dropout + 1);
  x = layer_norm(tape, x, layer.attention_norm, epsilon);
  const Activated inner =
      linear_activation(tape, x, layer.up.weight, layer.up.bias, Activation::Gelu);
  x = add_projection(tape, x, inner, layer.down, layer.first_dropout + 2);
  return layer_norm(tape, x, layer.output_norm, epsilon);
}

Variable Bert::head_input(Tape& tape, Variable x) const {
  x = linear(tape, x, transform_);
  x = activation(tape, x, Activation::Gelu);
  return layer_norm(tape, x, transform_norm_, config_.norm_epsilon);
}

void Bert::end(Tape& tape, std::span<const Tensor> inputs, Variable x) const {
  classifier_cross_entropy(tape, head_input(tape, x), word_embedding_, config_.vocabulary,
                           inputs[2], {}, head_bias_);
}

}  // namespace ebb

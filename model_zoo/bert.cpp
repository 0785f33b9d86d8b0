#include "model_zoo/bert.h"

#include <fmt/format.h>

#include "autograd/primitives.h"
#include "model_zoo/sizes.h"

namespace ebb {
namespace {

void check(const BertConfig& c, int64_t micro_batch_size, int64_t length) {
  check_positive("the vocabulary", c.vocabulary);
  check_positive("the number of positions", c.max_positions);
  check_positive("the number of token types", c.num_token_types);
  check_positive("the number of channels", c.channels);
  check_positive("the number of layers", c.num_layers);
  check_positive("the number of heads", c.num_heads);
  check_positive("the number of channels inside the MLP", c.mlp_channels);
  check_positive("the micro-batch size", micro_batch_size);
  check_model_size(c.num_layers, num_parameters(c));
  check_divides("heads", c.num_heads, "channels", c.channels);
  check_length(length, c.max_positions);
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
  const double attention =
      2.0 * static_cast<double>(c.num_layers * c.channels) * static_cast<double>(length);
  return 6 * (matrices + attention) * static_cast<double>(tokens);
}

Bert::Bert(const BertConfig& config, int64_t micro_batch_size, int64_t length, DType dtype)
    : config_(config), micro_batch_size_(micro_batch_size), length_(length), dtype_(dtype) {
  check(config, micro_batch_size, length);
  declare();
}

void Bert::declare() {
  const int64_t c = config_.channels;
  const auto table = [&](std::string_view name, int64_t rows) {
    return parameters_.add(fmt::format("bert.embeddings.{}_embeddings.weight", name), {rows, c},
                           Init::normal(0.02f));
  };
  const auto projection = [&](const std::string& name, int64_t rows, int64_t columns) {
    const auto weight = parameters_.add(name + ".weight", {rows, columns}, Init::normal(0.02f));
    return Projection{weight, parameters_.add(name + ".bias", {rows}, Init::zeros())};
  };
  const auto norm = [&](const std::string& name) {
    const auto weight = parameters_.add(name + ".LayerNorm.weight", {c}, Init::ones());
    return Norm{weight, parameters_.add(name + ".LayerNorm.bias", {c}, Init::zeros())};
  };
  word_embedding_ = table("word", config_.vocabulary);
  position_embedding_ = table("position", config_.max_positions);
  type_embedding_ = table("token_type", config_.num_token_types);
  embedding_norm_ = norm("bert.embeddings");
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    const std::string prefix = fmt::format("bert.encoder.layer.{}.", i);
    Layer layer{};
    layer.qkv = projection(prefix + "attention.self.qkv", 3 * c, c);
    layer.attention_output = projection(prefix + "attention.output.dense", c, c);
    layer.attention_norm = norm(prefix + "attention.output");
    layer.up = projection(prefix + "intermediate.dense", config_.mlp_channels, c);
    layer.down = projection(prefix + "output.dense", c, config_.mlp_channels);
    layer.output_norm = norm(prefix + "output");
    layer.first_dropout = 1 + 3 * static_cast<uint32_t>(i);  // 0: the embeddings
    layers_.push_back(layer);
  }
  transform_ = projection("cls.predictions.transform.dense", c, c);
  transform_norm_ = norm("cls.predictions.transform");
  head_bias_ = parameters_.add("cls.predictions.bias", {config_.vocabulary}, Init::zeros());
}

std::vector<InputSpec> Bert::inputs() const {
  const Shape shape{micro_batch_size_, length_};
  return {{"tokens", shape, DType::I32},
          {"positions", shape, DType::I32},
          {"targets", shape, DType::I32},
          {"token_types", shape, DType::I32},
          {"document_starts", shape, DType::I32}};
}

Variable Bert::run_layer(Tape& tape, const Layer& layer, std::byte* document_starts,
                         Variable x) const {
  const float epsilon = config_.norm_epsilon;
  Variable a = linear(tape, x, layer.qkv.weight, layer.qkv.bias);  // (B, T, 3C)
  a = attention(tape, a,
                {.num_heads = config_.num_heads,
                 .causal = false,
                 .document_starts = {document_starts, DType::I32, {micro_batch_size_, length_}},
                 .dropout = tape.dropout_at(layer.first_dropout, micro_batch_size_)});
  a = linear(tape, a, layer.attention_output.weight, layer.attention_output.bias);
  a = dropout(tape, a, layer.first_dropout + 1);
  x = add(tape, x, a);
  x = layer_norm(tape, x, layer.attention_norm.weight, layer.attention_norm.bias, epsilon);
  const Activated inner =
      linear_activation(tape, x, layer.up.weight, layer.up.bias, Activation::Gelu);
  Variable m = activation_linear(tape, inner, layer.down.weight, layer.down.bias);
  m = dropout(tape, m, layer.first_dropout + 2);
  x = add(tape, x, m);
  return layer_norm(tape, x, layer.output_norm.weight, layer.output_norm.bias, epsilon);
}

Variable Bert::hidden(Tape& tape, std::span<const Tensor> inputs) const {
  const float epsilon = config_.norm_epsilon;
  Variable x = embedding(tape, inputs[0], inputs[1], word_embedding_, position_embedding_,
                         config_.channels, dtype_);
  x = add(tape, x, embedding(tape, inputs[3], type_embedding_, config_.channels, dtype_));
  x = layer_norm(tape, x, embedding_norm_.weight, embedding_norm_.bias, epsilon);
  x = dropout(tape, x, 0);
  for (const Layer& layer : layers_) {
    const auto body = [this, &layer, starts = inputs[4].data](Tape& t, Variable v) {
      return run_layer(t, layer, starts, v);
    };
    tape.next_layer(body, x);
  }
  x = linear(tape, x, transform_.weight, transform_.bias);
  x = activation(tape, x, Activation::Gelu);
  return layer_norm(tape, x, transform_norm_.weight, transform_norm_.bias, epsilon);
}

void Bert::forward(Tape& tape, std::span<const Tensor> inputs) const {
  classifier_cross_entropy(tape, hidden(tape, inputs), word_embedding_, config_.vocabulary,
                           inputs[2], {}, head_bias_);
}

}  // namespace ebb

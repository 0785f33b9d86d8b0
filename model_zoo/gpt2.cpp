#include "model_zoo/gpt2.h"

#include <fmt/format.h>

#include <cmath>

#include "model_zoo/sizes.h"

namespace ebb {
namespace {

void check(const Gpt2Config& config, const MicroBatchShape& shape) {
  check_all_positive({{"the vocabulary", config.vocabulary},
                      {"the number of positions", config.max_positions},
                      {"the number of channels", config.channels},
                      {"the number of layers", config.num_layers},
                      {"the number of heads", config.num_heads},
                      {"the number of channels inside the MLP", config.inner_channels()},
                      {"the micro-batch size", shape.batch_size}});
  check_model_size(config.num_layers, num_parameters(config));
  check_divides("heads", config.num_heads, "channels", config.channels);
  check_length(shape.length, config.max_positions);
  check_cache_length(shape.cache_length, shape.packed, config.max_positions);
}

}  // namespace

uint64_t num_parameters(const Gpt2Config& c) {
  const Count channels = c.channels, inner = c.inner_channels();
  const Count layer = 4 * channels * channels + 2 * channels * inner + 9 * channels + inner;
  const Count tables = (Count(c.vocabulary) + c.max_positions) * channels;
  return static_cast<uint64_t>((tables + c.num_layers * layer + 2 * channels).value());
}

double training_flops(const Gpt2Config& c, uint64_t tokens, int64_t length) {
  // Position embeddings are lookups without multiplications. The token embedding counts once, as
  // the head.
  const double matrices =
      static_cast<double>(num_parameters(c)) - static_cast<double>(c.max_positions * c.channels);
  return transformer_flops(matrices, c.num_layers, c.channels, length, tokens);
}

Gpt2::Gpt2(const Gpt2Config& config, int64_t micro_batch_size, int64_t length, DType dtype,
           bool packed, int64_t cache_length)
    : config_(config), shape_{micro_batch_size, length, packed, cache_length}, dtype_(dtype) {
  check(config_, shape_);
  const int64_t c = config_.channels;
  const Init normal = Init::normal(kInitialDeviation);
  wte_ = parameters_.add("wte.weight", {config_.vocabulary, c}, normal);
  wpe_ = parameters_.add("wpe.weight", {config_.max_positions, c}, normal);
  for (int64_t i = 0; i < config_.num_layers; ++i) layers_.push_back(declare_layer(i));
  final_norm_ = declare_norm(parameters_, "ln_f", c);
}

/// The initialisation is that of GPT-2: N(0, 0.02), scaled by 1 / sqrt(2 layers) for the two
/// projections into the residual stream.
Gpt2::Layer Gpt2::declare_layer(int64_t index) {
  const int64_t c = config_.channels, inner = config_.inner_channels();
  const float residual =
      kInitialDeviation / std::sqrt(2.0f * static_cast<float>(config_.num_layers));
  const std::string prefix = fmt::format("h.{}.", index);
  const auto projection = [&](const char* name, int64_t rows, int64_t columns, float deviation) {
    return declare_projection(parameters_, prefix + name, rows, columns, deviation);
  };
  return {.norm1 = declare_norm(parameters_, prefix + "ln_1", c),
          .qkv = projection("attn.c_attn", 3 * c, c, kInitialDeviation),
          .projection = projection("attn.c_proj", c, c, residual),
          .norm2 = declare_norm(parameters_, prefix + "ln_2", c),
          .up = projection("mlp.c_fc", inner, c, kInitialDeviation),
          .down = projection("mlp.c_proj", c, inner, residual),
          .first_dropout = 1 + 3 * static_cast<uint32_t>(index)};  // 0: the embeddings
}

std::vector<InputSpec> Gpt2::inputs() const {
  return decoder_inputs(shape_, dtype_, config_.num_layers, 2 * config_.channels);
}

Variable Gpt2::begin(Tape& tape, std::span<const Tensor> inputs) const {
  const Variable x = embedding(tape, inputs[0], inputs[1], wte_, wpe_, config_.channels, dtype_);
  return dropout(tape, x, 0);
}

Variable Gpt2::layer(Tape& tape, std::span<const Tensor> inputs, uint32_t i, Variable x) const {
  const Layer& layer = layers_[i];
  const float epsilon = config_.layer_norm_epsilon;
  Variable a = layer_norm(tape, x, layer.norm1, epsilon);
  a = linear(tape, a, layer.qkv);  // (B, T, 3C)
  a = decoder_attention(tape, inputs, shape_, i, a, {.num_heads = config_.num_heads},
                        layer.first_dropout);
  x = add_projection(tape, x, a, layer.projection, layer.first_dropout + 1);
  const Variable m = layer_norm(tape, x, layer.norm2, epsilon);
  const Activated inner = linear_activation(tape, m, layer.up.weight, layer.up.bias,
                                            Activation::GeluTanh);  // (B, T, inner)
  return add_projection(tape, x, inner, layer.down, layer.first_dropout + 2);
}

Variable Gpt2::head_input(Tape& tape, Variable x) const {
  return layer_norm(tape, x, final_norm_, config_.layer_norm_epsilon);
}

void Gpt2::end(Tape& tape, std::span<const Tensor> inputs, Variable x) const {
  classifier_cross_entropy(tape, head_input(tape, x), wte_, config_.vocabulary, inputs[2]);
}

}  // namespace ebb

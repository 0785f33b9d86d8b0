#include "model_zoo/gpt2.h"

#include <fmt/format.h>

#include <cmath>

#include "autograd/primitives.h"
#include "model_zoo/sizes.h"

namespace ebb {
namespace {

void check(const Gpt2Config& config, int64_t micro_batch_size, int64_t length) {
  check_positive("the vocabulary", config.vocabulary);
  check_positive("the number of positions", config.max_positions);
  check_positive("the number of channels", config.channels);
  check_positive("the number of layers", config.num_layers);
  check_positive("the number of heads", config.num_heads);
  check_positive("the number of channels inside the MLP", config.inner_channels());
  check_positive("the micro-batch size", micro_batch_size);
  check_model_size(config.num_layers, num_parameters(config));
  check_divides("heads", config.num_heads, "channels", config.channels);
  check_length(length, config.max_positions);
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
  const double attention =
      2.0 * static_cast<double>(c.num_layers * c.channels) * static_cast<double>(length);
  return 6 * (matrices + attention) * static_cast<double>(tokens);
}

Gpt2::Gpt2(const Gpt2Config& config, int64_t micro_batch_size, int64_t length, DType dtype,
           bool packed, int64_t cache_length)
    : config_(config),
      micro_batch_size_(micro_batch_size),
      length_(length),
      dtype_(dtype),
      packed_(packed),
      cache_length_(cache_length) {
  check(config, micro_batch_size, length);
  check_cache_length(cache_length, packed, config.max_positions);
  declare();
}

/// The initialisation is that of GPT-2: N(0, 0.02), scaled by 1 / sqrt(2 layers) for the two
/// projections into the residual stream.
void Gpt2::declare() {
  const int64_t c = config_.channels, inner = config_.inner_channels();
  const Init normal = Init::normal(0.02f);
  const Init residual =
      Init::normal(0.02f / std::sqrt(2.0f * static_cast<float>(config_.num_layers)));
  wte_ = parameters_.add("wte.weight", {config_.vocabulary, c}, normal);
  wpe_ = parameters_.add("wpe.weight", {config_.max_positions, c}, normal);
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    const auto add = [&](std::string_view name, Shape shape, Init init) {
      return parameters_.add(fmt::format("h.{}.{}", i, name), shape, init);
    };
    Layer layer{};
    layer.norm1_weight = add("ln_1.weight", {c}, Init::ones());
    layer.norm1_bias = add("ln_1.bias", {c}, Init::zeros());
    layer.qkv_weight = add("attn.c_attn.weight", {3 * c, c}, normal);
    layer.qkv_bias = add("attn.c_attn.bias", {3 * c}, Init::zeros());
    layer.projection_weight = add("attn.c_proj.weight", {c, c}, residual);
    layer.projection_bias = add("attn.c_proj.bias", {c}, Init::zeros());
    layer.norm2_weight = add("ln_2.weight", {c}, Init::ones());
    layer.norm2_bias = add("ln_2.bias", {c}, Init::zeros());
    layer.up_weight = add("mlp.c_fc.weight", {inner, c}, normal);
    layer.up_bias = add("mlp.c_fc.bias", {inner}, Init::zeros());
    layer.down_weight = add("mlp.c_proj.weight", {c, inner}, residual);
    layer.down_bias = add("mlp.c_proj.bias", {c}, Init::zeros());
    layer.first_dropout = 1 + 3 * static_cast<uint32_t>(i);  // 0: the embeddings
    layers_.push_back(layer);
  }
  final_norm_weight_ = parameters_.add("ln_f.weight", {c}, Init::ones());
  final_norm_bias_ = parameters_.add("ln_f.bias", {c}, Init::zeros());
}

std::vector<InputSpec> Gpt2::inputs() const {
  const Shape shape{micro_batch_size_, length_};
  std::vector<InputSpec> specs = {{"tokens", shape, DType::I32},
                                  {"positions", shape, DType::I32},
                                  {"targets", shape, DType::I32}};
  if (packed_) specs.push_back({"document_starts", shape, DType::I32});
  if (cache_length_ > 0) {
    const Shape cache{config_.num_layers, micro_batch_size_, cache_length_, 2 * config_.channels};
    specs.push_back({"cache", cache, dtype_, true});
  }
  return specs;
}

Variable Gpt2::attend(Tape& tape, const Layer& layer, const Shared& shared, Variable qkv) const {
  const Shape tokens{micro_batch_size_, length_};
  AttentionShape shape{.num_heads = config_.num_heads};
  if (shared.cache != nullptr) {
    const Shape cache{micro_batch_size_, cache_length_, 2 * config_.channels};
    return attention(tape, qkv, shape, {shared.cache, dtype_, cache},
                     {shared.positions, DType::I32, tokens});
  }
  shape.dropout = tape.dropout_at(layer.first_dropout, micro_batch_size_);
  shape.document_starts = {shared.document_starts, DType::I32, tokens};
  return attention(tape, qkv, shape);
}

Variable Gpt2::run_layer(Tape& tape, const Layer& layer, const Shared& shared, Variable x) const {
  const float epsilon = config_.layer_norm_epsilon;
  Variable a = layer_norm(tape, x, layer.norm1_weight, layer.norm1_bias, epsilon);
  a = linear(tape, a, layer.qkv_weight, layer.qkv_bias);  // (B, T, 3C)
  a = attend(tape, layer, shared, a);
  a = linear(tape, a, layer.projection_weight, layer.projection_bias);
  a = dropout(tape, a, layer.first_dropout + 1);
  x = add(tape, x, a);
  Variable m = layer_norm(tape, x, layer.norm2_weight, layer.norm2_bias, epsilon);
  const Activated inner = linear_activation(tape, m, layer.up_weight, layer.up_bias,
                                            Activation::GeluTanh);  // (B, T, inner)
  m = activation_linear(tape, inner, layer.down_weight, layer.down_bias);
  m = dropout(tape, m, layer.first_dropout + 2);
  return add(tape, x, m);
}

Variable Gpt2::hidden(Tape& tape, std::span<const Tensor> inputs) const {
  Variable x = embedding(tape, inputs[0], inputs[1], wte_, wpe_, config_.channels, dtype_);
  x = dropout(tape, x, 0);
  Shared shared{packed_ ? inputs[3].data : nullptr, inputs[1].data,
                cache_length_ > 0 ? inputs[3].data : nullptr};
  for (const Layer& layer : layers_) {
    tape.next_layer(
        [this, &layer, shared](Tape& t, Variable v) { return run_layer(t, layer, shared, v); }, x);
    if (shared.cache != nullptr) shared.cache += inputs[3].bytes() / layers_.size();
  }
  return layer_norm(tape, x, final_norm_weight_, final_norm_bias_, config_.layer_norm_epsilon);
}

void Gpt2::forward(Tape& tape, std::span<const Tensor> inputs) const {
  classifier_cross_entropy(tape, hidden(tape, inputs), wte_, config_.vocabulary, inputs[2]);
}

}  // namespace ebb

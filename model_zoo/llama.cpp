#include "model_zoo/llama.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model_zoo/sizes.h"

namespace ebb {
namespace {

void check(const LlamaConfig& c, const MicroBatchShape& shape) {
  check_all_positive({{"the vocabulary", c.vocabulary},
                      {"the number of positions", c.max_positions},
                      {"the number of channels", c.channels},
                      {"the number of layers", c.num_layers},
                      {"the number of heads", c.num_heads},
                      {"the number of heads of keys and values", c.num_kv_heads},
                      {"head_dim", c.head_dim},
                      {"the number of channels inside the MLP", c.mlp_channels},
                      {"the micro-batch size", shape.batch_size},
                      {"the sliding window", c.sliding_window.value_or(1)}});
  check_at_most("head_dim", c.head_dim, kMostHeadDim);  // there is a table of its frequencies
  check_model_size(c.num_layers, num_parameters(c));
  check_divides("heads of keys and values", c.num_kv_heads, "heads", c.num_heads);
  if (!std::isfinite(c.norm_epsilon) || c.norm_epsilon < 0) {
    throw ConfigError(
        fmt::format("the norms' epsilon is {}: it must be 0 or more", c.norm_epsilon));
  }
  check_length(shape.length, c.max_positions);
  check_cache_length(shape.cache_length, shape.packed, c.max_positions);
}

Count query_channels(const LlamaConfig& c) { return Count(c.num_heads) * c.head_dim; }
Count qkv_channels(const LlamaConfig& c) {
  return (Count(c.num_heads) + Count(2) * c.num_kv_heads) * c.head_dim;
}

Count biases_of_layer(const LlamaConfig& c) {
  Count biases = 0;
  if (c.qkv_bias) biases = biases + qkv_channels(c);
  if (c.output_bias) biases = biases + c.channels;
  if (c.mlp_bias) biases = biases + Count(2) * c.mlp_channels + c.channels;
  return biases;
}

}  // namespace

uint64_t num_parameters(const LlamaConfig& c) {
  const Count channels = c.channels;
  const Count matrices = qkv_channels(c) + query_channels(c) + Count(3) * c.mlp_channels;
  const Count norms = 2 * channels + Count(c.qk_norm ? 2 : 0) * c.head_dim;
  const Count layer = matrices * channels + norms + biases_of_layer(c);
  const Count tables = Count(c.tied_head ? 1 : 2) * c.vocabulary * channels;
  return static_cast<uint64_t>((tables + c.num_layers * layer + channels).value());
}

double training_flops(const LlamaConfig& c, uint64_t tokens, int64_t length) {
  // The embedding is a lookup without multiplications. A tied embedding counts once, as the head.
  const double matrices = static_cast<double>(num_parameters(c)) -
                          (c.tied_head ? 0.0 : static_cast<double>(c.vocabulary * c.channels));
  const int64_t seen = std::min(length, c.sliding_window.value_or(length));
  return transformer_flops(matrices, c.num_layers, c.query_channels(), seen, tokens);
}

Llama::Llama(const LlamaConfig& config, int64_t micro_batch_size, int64_t length, DType dtype,
             bool packed, int64_t cache_length)
    : config_(config), shape_{micro_batch_size, length, packed, cache_length}, dtype_(dtype) {
  check(config_, shape_);
  frequencies_ = rotary_frequencies(config.rotary, config.head_dim);
  const Shape table{config.vocabulary, config.channels};
  embedding_ = parameters_.add("model.embed_tokens.weight", table, Init::normal(kInitialDeviation));
  for (int64_t i = 0; i < config.num_layers; ++i) layers_.push_back(declare_layer(i));
  final_norm_ = parameters_.add("model.norm.weight", {config.channels}, Init::ones());
  head_ = config.tied_head
              ? embedding_
              : parameters_.add("lm_head.weight", table, Init::normal(kInitialDeviation));
}

Llama::Layer Llama::declare_layer(int64_t index) {
  const LlamaConfig& c = config_;
  const auto add = [&](std::string_view name, Shape shape, Init init) {
    return parameters_.add(fmt::format("model.layers.{}.{}", index, name), shape, init);
  };
  const auto matrix = [&](std::string_view name, int64_t rows, int64_t columns) {
    return add(name, {rows, columns}, Init::normal(kInitialDeviation));
  };
  const auto bias = [&](bool there, std::string_view name,
                        int64_t size) -> std::optional<ParameterId> {
    if (!there) return std::nullopt;
    return add(name, {size}, Init::zeros());
  };
  const auto norm = [&](std::string_view name, int64_t size) {
    return add(name, {size}, Init::ones());
  };
  Layer layer{};
  layer.input_norm = norm("input_layernorm.weight", c.channels);
  layer.qkv = matrix("self_attn.qkv.weight", c.qkv_channels(), c.channels);
  layer.qkv_bias = bias(c.qkv_bias, "self_attn.qkv.bias", c.qkv_channels());
  if (c.qk_norm) {
    layer.q_norm = norm("self_attn.q_norm.weight", c.head_dim);
    layer.k_norm = norm("self_attn.k_norm.weight", c.head_dim);
  }
  layer.output = matrix("self_attn.o_proj.weight", c.channels, c.query_channels());
  layer.output_bias = bias(c.output_bias, "self_attn.o_proj.bias", c.channels);
  layer.mlp_norm = norm("post_attention_layernorm.weight", c.channels);
  layer.gate_up = matrix("mlp.gate_up.weight", 2 * c.mlp_channels, c.channels);
  layer.gate_up_bias = bias(c.mlp_bias, "mlp.gate_up.bias", 2 * c.mlp_channels);
  layer.down = matrix("mlp.down_proj.weight", c.channels, c.mlp_channels);
  layer.down_bias = bias(c.mlp_bias, "mlp.down_proj.bias", c.channels);
  return layer;
}

std::vector<InputSpec> Llama::inputs() const {
  return decoder_inputs(shape_, dtype_, config_.num_layers,
                        2 * config_.num_kv_heads * config_.head_dim);
}

/// All layers share the table of rotary positions.
Variable Llama::begin(Tape& tape, std::span<const Tensor> inputs) const {
  tape.share(rotary_table(tape, inputs[1], frequencies_, rotary_factor(config_.rotary)));
  return embedding(tape, inputs[0], embedding_, config_.channels, dtype_);
}

Variable Llama::attend(Tape& tape, std::span<const Tensor> inputs, uint32_t i, Variable x) const {
  const LlamaConfig& c = config_;
  const Layer& layer = layers_[i];
  Variable qkv = linear(tape, x, layer.qkv, layer.qkv_bias);
  if (layer.q_norm) {
    qkv = head_norm(tape, qkv, *layer.q_norm, *layer.k_norm, {c.num_heads, c.num_kv_heads},
                    c.norm_epsilon);
  }
  qkv = rotary(tape, qkv, tape.shared(0).value, c.num_heads + c.num_kv_heads);
  const AttentionShape heads{.num_heads = c.num_heads,
                             .num_kv_heads = c.num_kv_heads,
                             .window = c.sliding_window.value_or(0)};
  // This family has no other dropout than that of the attention weights.
  return decoder_attention(tape, inputs, shape_, i, qkv, heads, i);
}

Variable Llama::layer(Tape& tape, std::span<const Tensor> inputs, uint32_t i, Variable x) const {
  const Layer& layer = layers_[i];
  Variable a = rms_norm(tape, x, layer.input_norm, config_.norm_epsilon);
  a = attend(tape, inputs, i, a);
  x = linear(tape, a, layer.output, layer.output_bias, x);
  Variable m = rms_norm(tape, x, layer.mlp_norm, config_.norm_epsilon);
  m = linear(tape, m, layer.gate_up, layer.gate_up_bias);  // (B, T, 2F)
  m = swiglu(tape, m);
  return linear(tape, m, layer.down, layer.down_bias, x);
}

Variable Llama::head_input(Tape& tape, Variable x) const {
  return rms_norm(tape, x, final_norm_, config_.norm_epsilon);
}

void Llama::end(Tape& tape, std::span<const Tensor> inputs, Variable x) const {
  classifier_cross_entropy(tape, head_input(tape, x), head_, config_.vocabulary, inputs[2]);
}

}  // namespace ebb

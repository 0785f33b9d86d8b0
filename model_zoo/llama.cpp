#include "model_zoo/llama.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "autograd/primitives.h"
#include "model_zoo/sizes.h"

namespace ebb {
namespace {

void check(const LlamaConfig& c, int64_t micro_batch_size, int64_t length) {
  check_positive("the vocabulary", c.vocabulary);
  check_positive("the number of positions", c.max_positions);
  check_positive("the number of channels", c.channels);
  check_positive("the number of layers", c.num_layers);
  check_positive("the number of heads", c.num_heads);
  check_positive("the number of heads of keys and values", c.num_kv_heads);
  check_positive("head_dim", c.head_dim);
  check_at_most("head_dim", c.head_dim, kMostHeadDim);  // there is a table of its frequencies
  check_positive("the number of channels inside the MLP", c.mlp_channels);
  check_positive("the micro-batch size", micro_batch_size);
  check_model_size(c.num_layers, num_parameters(c));
  check_divides("heads of keys and values", c.num_kv_heads, "heads", c.num_heads);
  if (c.sliding_window) check_positive("the sliding window", *c.sliding_window);
  if (!std::isfinite(c.norm_epsilon) || c.norm_epsilon < 0) {
    throw ConfigError(
        fmt::format("the norms' epsilon is {}: it must be 0 or more", c.norm_epsilon));
  }
  check_length(length, c.max_positions);
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
  const double attention =
      2.0 * static_cast<double>(c.num_layers * c.query_channels()) * static_cast<double>(seen);
  return 6 * (matrices + attention) * static_cast<double>(tokens);
}

Llama::Llama(const LlamaConfig& config, int64_t micro_batch_size, int64_t length, DType dtype,
             bool packed, int64_t cache_length)
    : config_(config),
      micro_batch_size_(micro_batch_size),
      length_(length),
      dtype_(dtype),
      packed_(packed),
      cache_length_(cache_length) {
  check(config, micro_batch_size, length);
  check_cache_length(cache_length, packed, config.max_positions);
  frequencies_ = rotary_frequencies(config.rotary, config.head_dim);
  const Shape table{config.vocabulary, config.channels};
  embedding_ = parameters_.add("model.embed_tokens.weight", table, Init::normal(0.02f));
  for (int64_t i = 0; i < config.num_layers; ++i) layers_.push_back(declare_layer(i));
  final_norm_ = parameters_.add("model.norm.weight", {config.channels}, Init::ones());
  head_ =
      config.tied_head ? embedding_ : parameters_.add("lm_head.weight", table, Init::normal(0.02f));
}

Llama::Layer Llama::declare_layer(int64_t index) {
  const LlamaConfig& c = config_;
  const auto add = [&](std::string_view name, Shape shape, Init init) {
    return parameters_.add(fmt::format("model.layers.{}.{}", index, name), shape, init);
  };
  const auto matrix = [&](std::string_view name, int64_t rows, int64_t columns) {
    return add(name, {rows, columns}, Init::normal(0.02f));
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
  layer.dropout = static_cast<uint32_t>(index);
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
  const Shape shape{micro_batch_size_, length_};
  std::vector<InputSpec> specs = {{"tokens", shape, DType::I32},
                                  {"positions", shape, DType::I32},
                                  {"targets", shape, DType::I32}};
  if (packed_) specs.push_back({"document_starts", shape, DType::I32});
  if (cache_length_ > 0) {
    const Shape cache{config_.num_layers, micro_batch_size_, cache_length_,
                      2 * config_.num_kv_heads * config_.head_dim};
    specs.push_back({"cache", cache, dtype_, true});
  }
  return specs;
}

Variable Llama::attend(Tape& tape, const Layer& layer, const Shared& shared, Variable x) const {
  const LlamaConfig& c = config_;
  Variable qkv = linear(tape, x, layer.qkv, layer.qkv_bias);
  if (layer.q_norm) {
    qkv = head_norm(tape, qkv, *layer.q_norm, *layer.k_norm, {c.num_heads, c.num_kv_heads},
                    c.norm_epsilon);
  }
  const Tensor table{shared.rotary_table, DType::F32, {micro_batch_size_ * length_, c.head_dim}};
  qkv = rotary(tape, qkv, table, c.num_heads + c.num_kv_heads);
  const Shape tokens{micro_batch_size_, length_};
  AttentionShape shape{.num_heads = c.num_heads,
                       .num_kv_heads = c.num_kv_heads,
                       .window = c.sliding_window.value_or(0)};
  if (shared.cache != nullptr) {
    const Shape cache{micro_batch_size_, cache_length_, 2 * c.num_kv_heads * c.head_dim};
    return attention(tape, qkv, shape, {shared.cache, dtype_, cache},
                     {shared.positions, DType::I32, tokens});
  }
  shape.dropout = tape.dropout_at(layer.dropout, micro_batch_size_);
  shape.document_starts = {shared.document_starts, DType::I32, tokens};
  return attention(tape, qkv, shape);
}

Variable Llama::run_layer(Tape& tape, const Layer& layer, const Shared& shared, Variable x) const {
  Variable a = rms_norm(tape, x, layer.input_norm, config_.norm_epsilon);
  a = attend(tape, layer, shared, a);
  a = linear(tape, a, layer.output, layer.output_bias);
  x = add(tape, x, a);
  Variable m = rms_norm(tape, x, layer.mlp_norm, config_.norm_epsilon);
  m = linear(tape, m, layer.gate_up, layer.gate_up_bias);  // (B, T, 2F)
  m = swiglu(tape, m);
  m = linear(tape, m, layer.down, layer.down_bias);
  return add(tape, x, m);
}

Variable Llama::hidden(Tape& tape, std::span<const Tensor> inputs) const {
  const Variable table = rotary_table(tape, inputs[1], frequencies_, rotary_factor(config_.rotary));
  Shared shared{table.value.data, packed_ ? inputs[3].data : nullptr, inputs[1].data,
                cache_length_ > 0 ? inputs[3].data : nullptr};
  Variable x = embedding(tape, inputs[0], embedding_, config_.channels, dtype_);
  for (const Layer& layer : layers_) {
    tape.next_layer(
        [this, &layer, shared](Tape& t, Variable v) { return run_layer(t, layer, shared, v); }, x);
    if (shared.cache != nullptr) shared.cache += inputs[3].bytes() / layers_.size();
  }
  return rms_norm(tape, x, final_norm_, config_.norm_epsilon);
}

void Llama::forward(Tape& tape, std::span<const Tensor> inputs) const {
  classifier_cross_entropy(tape, hidden(tape, inputs), head_, config_.vocabulary, inputs[2]);
}

}  // namespace ebb

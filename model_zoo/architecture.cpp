#include "model_zoo/architecture.h"

#include "device/errors.h"

namespace ebb {
namespace {

// The functions of architecture.h for each architecture.

std::unique_ptr<const Model> create(const Gpt2Config& config, const MicroBatchShape& s,
                                    DType dtype) {
  return std::make_unique<const Gpt2>(config, s.batch_size, s.length, dtype, s.packed,
                                      s.cache_length);
}
std::unique_ptr<const Model> create(const LlamaConfig& config, const MicroBatchShape& s,
                                    DType dtype) {
  return std::make_unique<const Llama>(config, s.batch_size, s.length, dtype, s.packed,
                                       s.cache_length);
}
std::unique_ptr<const Model> create(const BertConfig& config, const MicroBatchShape& s,
                                    DType dtype) {
  if (s.cache_length > 0) throw ConfigError("a masked-language model does not generate");
  return std::make_unique<const Bert>(config, s.batch_size, s.length, dtype);
}

}  // namespace

std::unique_ptr<const Model> create_model(const ModelConfig& config, const MicroBatchShape& shape,
                                          DType dtype) {
  return std::visit([&](const auto& c) { return create(c, shape, dtype); }, config);
}

uint64_t num_parameters(const ModelConfig& config) {
  return std::visit([](const auto& c) { return num_parameters(c); }, config);
}

double training_flops(const ModelConfig& config, uint64_t tokens, int64_t length) {
  return std::visit([&](const auto& c) { return training_flops(c, tokens, length); }, config);
}

std::string_view architecture_of(const ModelConfig& config) {
  static constexpr std::string_view kNames[] = {"gpt2", "llama", "bert"};
  return kNames[config.index()];
}

ModelSizes sizes_of(const ModelConfig& config) {
  return std::visit(
      [](const auto& c) {
        return ModelSizes{c.vocabulary, c.channels, c.num_layers, c.num_heads, c.max_positions};
      },
      config);
}

bool predicts_next_token(const ModelConfig& config) {
  return !std::holds_alternative<BertConfig>(config);
}

}  // namespace ebb

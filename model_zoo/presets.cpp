#include "model_zoo/presets.h"

#include <fmt/format.h>

namespace ebb {
namespace {

constexpr Preset gpt(std::string_view name, int64_t vocabulary, int64_t positions, int64_t channels,
                     int64_t layers, int64_t heads, std::string_view description) {
  return {name,
          Gpt2Config{.vocabulary = vocabulary,
                     .max_positions = positions,
                     .channels = channels,
                     .num_layers = layers,
                     .num_heads = heads},
          description};
}

/// The heads of a model of the Llama family: heads of queries, heads of keys, elements of a head.
struct Heads {
  int64_t queries, keys, width;
};

constexpr LlamaConfig llama(int64_t vocabulary, int64_t positions, int64_t channels, int64_t layers,
                            Heads heads, int64_t mlp_channels, Rotary rotary) {
  return {.vocabulary = vocabulary,
          .channels = channels,
          .num_layers = layers,
          .num_heads = heads.queries,
          .num_kv_heads = heads.keys,
          .head_dim = heads.width,
          .mlp_channels = mlp_channels,
          .max_positions = positions,
          .rotary = rotary};
}

constexpr LlamaConfig tied(LlamaConfig config) {
  config.tied_head = true;
  return config;
}

/// Qwen2.5 has biases of q, k and v; Qwen3 has norms of q and k.
constexpr LlamaConfig qwen2(LlamaConfig config) {
  config.norm_epsilon = 1e-6f;
  config.qkv_bias = true;
  return config;
}
constexpr LlamaConfig qwen3(LlamaConfig config) {
  config.norm_epsilon = 1e-6f;
  config.qk_norm = true;
  return config;
}

constexpr Rotary llama31_rotary(double factor) {
  return {.theta = 500000,
          .scaling = RotaryScaling::Llama3,
          .factor = factor,
          .low_freq_factor = 1,
          .high_freq_factor = 4,
          .original_max_positions = 8192};
}

constexpr Preset bert(std::string_view name, int64_t channels, int64_t layers, int64_t heads,
                      std::string_view description) {
  return {name,
          BertConfig{.channels = channels,
                     .num_layers = layers,
                     .num_heads = heads,
                     .mlp_channels = 4 * channels},
          description};
}

// Sources: GPT-2: Radford et al. 2019. GPT-3: Brown et al. 2020, table 2.1. gpt-1t: Narayanan et
// al. 2021, table 1 (arXiv 2104.04473). All others: the config.json of the base models on the
// Hugging Face hub.
constexpr Preset kPresets[] = {
    gpt("toy-bytes", 256, 256, 128, 4, 4, "a toy over bytes, for trying things out"),
    gpt("gpt-6x384-bytes", 256, 1024, 384, 6, 6, "6 layers of 384 channels over bytes"),
    gpt("gpt2-bytes", 256, 1024, 768, 12, 12, "GPT-2's layers over bytes"),
    gpt("gpt-6x384", 50257, 1024, 384, 6, 6, "6 layers of 384 channels, GPT-2's vocabulary"),
    gpt("gpt2", 50257, 1024, 768, 12, 12, "GPT-2 small"),
    gpt("gpt2-medium", 50257, 1024, 1024, 24, 16, "GPT-2 medium"),
    gpt("gpt2-large", 50257, 1024, 1280, 36, 20, "GPT-2 large"),
    gpt("gpt2-xl", 50257, 1024, 1600, 48, 25, "GPT-2 XL"),
    gpt("gpt3-2.7b", 50257, 2048, 2560, 32, 32, "GPT-3 2.7B"),
    gpt("gpt3-6.7b", 50257, 2048, 4096, 32, 32, "GPT-3 6.7B"),
    gpt("gpt3-13b", 50257, 2048, 5120, 40, 40, "GPT-3 13B"),
    gpt("gpt3-175b", 50257, 2048, 12288, 96, 96, "GPT-3 175B"),
    gpt("gpt-1t", 51200, 2048, 25600, 128, 160, "a GPT with a trillion parameters"),
    {"llama-toy-bytes", tied(llama(256, 1024, 128, 4, {4, 2, 32}, 352, {})),
     "a toy of the Llama family over bytes"},
    {"llama-6x384-bytes", tied(llama(256, 2048, 384, 6, {6, 2, 64}, 1024, {})),
     "6 layers of 384 channels of the Llama family over bytes"},
    {"llama-2-7b", llama(32000, 4096, 4096, 32, {32, 32, 128}, 11008, {}), "Llama 2 7B"},
    {"llama-2-13b", llama(32000, 4096, 5120, 40, {40, 40, 128}, 13824, {}), "Llama 2 13B"},
    {"llama-2-70b", llama(32000, 4096, 8192, 80, {64, 8, 128}, 28672, {}), "Llama 2 70B"},
    {"llama-3.1-8b", llama(128256, 131072, 4096, 32, {32, 8, 128}, 14336, llama31_rotary(8)),
     "Llama 3.1 8B"},
    {"llama-3.1-70b", llama(128256, 131072, 8192, 80, {64, 8, 128}, 28672, llama31_rotary(8)),
     "Llama 3.1 70B"},
    {"llama-3.1-405b", llama(128256, 131072, 16384, 126, {128, 8, 128}, 53248, llama31_rotary(8)),
     "Llama 3.1 405B"},
    {"llama-3.2-1b", tied(llama(128256, 131072, 2048, 16, {32, 8, 64}, 8192, llama31_rotary(32))),
     "Llama 3.2 1B"},
    {"llama-3.2-3b", tied(llama(128256, 131072, 3072, 28, {24, 8, 128}, 8192, llama31_rotary(32))),
     "Llama 3.2 3B"},
    {"mistral-7b", llama(32768, 32768, 4096, 32, {32, 8, 128}, 14336, {.theta = 1e6}),
     "Mistral 7B v0.3"},
    {"qwen2.5-0.5b", tied(qwen2(llama(151936, 32768, 896, 24, {14, 2, 64}, 4864, {.theta = 1e6}))),
     "Qwen2.5 0.5B"},
    {"qwen2.5-7b", qwen2(llama(152064, 131072, 3584, 28, {28, 4, 128}, 18944, {.theta = 1e6})),
     "Qwen2.5 7B"},
    {"qwen3-0.6b", tied(qwen3(llama(151936, 40960, 1024, 28, {16, 8, 128}, 3072, {.theta = 1e6}))),
     "Qwen3 0.6B"},
    {"qwen3-8b", qwen3(llama(151936, 40960, 4096, 36, {32, 8, 128}, 12288, {.theta = 1e6})),
     "Qwen3 8B"},
    bert("bert-base", 768, 12, 12, "BERT base, uncased"),
    bert("bert-large", 1024, 24, 16, "BERT large, uncased"),
};

}  // namespace

std::span<const Preset> presets() { return kPresets; }

const Preset& find_preset(std::string_view name) {
  std::string names;
  for (const Preset& preset : kPresets) {
    if (preset.name == name) return preset;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", preset.name);
  }
  throw ConfigError(fmt::format("`preset` {}: no such preset; there are {}", name, names));
}

}  // namespace ebb

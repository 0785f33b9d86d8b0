#include "model_zoo/presets.h"

#include <fmt/format.h>

namespace ebb {
namespace {

constexpr Preset gpt(std::string_view name, int64_t vocabulary, int64_t positions, int64_t channels,
                     int64_t layers, int64_t heads, std::string_view description) {
  return {name,
          {.vocabulary = vocabulary,
           .max_positions = positions,
           .channels = channels,
           .num_layers = layers,
           .num_heads = heads},
          description};
}

// GPT-2: Radford et al. 2019. GPT-3: Brown et al. 2020, table 2.1.
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
};

}  // namespace

std::span<const Preset> presets() { return kPresets; }

const Preset& find_preset(std::string_view name) {
  std::string names;
  for (const Preset& preset : kPresets) {
    if (preset.name == name) return preset;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", preset.name);
  }
  throw ConfigError(fmt::format("--preset {}: no such preset; there are {}", name, names));
}

}  // namespace ebb

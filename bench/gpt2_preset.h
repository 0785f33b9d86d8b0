// Presets of the models that the benchmarks train.
#pragma once

#include <string>
#include <string_view>

#include "device/errors.h"
#include "model_zoo/presets.h"

namespace ebb {

/// Returns a GPT-2 preset by name. Throws ConfigError for a preset of another architecture.
inline const Gpt2Config& find_gpt2_preset(std::string_view name) {
  const auto* config = std::get_if<Gpt2Config>(&find_preset(name).config);
  if (config != nullptr) return *config;
  throw ConfigError("--preset " + std::string(name) +
                    ": this benchmark takes a preset of GPT-2's or GPT-3's, such as gpt2");
}

}  // namespace ebb

// Named model configurations, from a toy with 1 M parameters to Llama 3.1 with 405 B. Pure
// functions.
#pragma once

#include <span>
#include <string_view>

#include "model_zoo/architecture.h"

namespace ebb {

struct Preset {
  std::string_view name;
  ModelConfig config;
  std::string_view description;
};

std::span<const Preset> presets();
/// Throws ConfigError that lists the names if there is no preset with this name.
const Preset& find_preset(std::string_view name);

}  // namespace ebb

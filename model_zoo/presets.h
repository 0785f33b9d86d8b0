// Named model shapes: from a toy of 1 M parameters to Llama 3.1's 405 B.
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
/// Throws ConfigError that lists the names.
const Preset& find_preset(std::string_view name);

}  // namespace ebb

// Named model shapes: from a toy of 1 M parameters to GPT-3's 175 B.
#pragma once

#include <span>
#include <string_view>

#include "model_zoo/gpt2.h"

namespace ebb {

struct Preset {
  std::string_view name;
  Gpt2Config config;
  std::string_view description;
};

std::span<const Preset> presets();
/// Throws ConfigError that lists the names.
const Preset& find_preset(std::string_view name);

}  // namespace ebb

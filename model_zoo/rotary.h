// Rotary positions: how fast each pair of a head's elements turns. Su et al. 2021 (arXiv
// 2104.09864); scaling: linear (arXiv 2306.15595), Llama 3.1's (arXiv 2407.21783), YaRN (arXiv
// 2309.00071), with the fields and defaults of Hugging Face's rope parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ebb {

enum class RotaryScaling : uint8_t { None, Linear, Llama3, Yarn };

struct Rotary {
  double theta = 10000;
  RotaryScaling scaling = RotaryScaling::None;
  double factor = 1;                            ///< all: how many times longer than trained
  double low_freq_factor = 1;                   ///< llama3
  double high_freq_factor = 4;                  ///< llama3
  double original_max_positions = 0;            ///< llama3, yarn: as trained
  double beta_fast = 32;                        ///< yarn
  double beta_slow = 1;                         ///< yarn
  bool truncate = true;                         ///< yarn: whole pairs between the two betas
  std::optional<double> attention_factor = {};  ///< yarn: nullopt = by factor and the two mscales
  std::optional<double> mscale = {};            ///< yarn
  std::optional<double> mscale_all_dim = {};    ///< yarn
};

/// Radians a position, of head_dim / 2 pairs. ConfigError for fields that cannot be.
std::vector<double> rotary_frequencies(const Rotary& rotary, int64_t head_dim);
/// What cosines and sines are multiplied with: 1 but for YaRN.
double rotary_factor(const Rotary& rotary);

}  // namespace ebb

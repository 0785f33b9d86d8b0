// Rotary positions: the frequency at which each pair of elements of a head turns (Su et al. 2021,
// arXiv 2104.09864). Scalings: linear (arXiv 2306.15595), that of Llama 3.1 (arXiv 2407.21783) and
// YaRN (arXiv 2309.00071), with the fields and defaults of Hugging Face's rope parameters. Pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ebb {

enum class RotaryScaling : uint8_t { None, Linear, Llama3, Yarn };

struct Rotary {
  double theta = 10000;
  RotaryScaling scaling = RotaryScaling::None;
  double factor = 1;                            ///< all: the extension of the trained length
  double low_freq_factor = 1;                   ///< llama3
  double high_freq_factor = 4;                  ///< llama3
  double original_max_positions = 0;            ///< llama3, yarn: the trained length
  double beta_fast = 32;                        ///< yarn
  double beta_slow = 1;                         ///< yarn
  bool truncate = true;                         ///< yarn: whole pairs between the two betas
  std::optional<double> attention_factor = {};  ///< yarn: nullopt = from factor and the mscales
  std::optional<double> mscale = {};            ///< yarn
  std::optional<double> mscale_all_dim = {};    ///< yarn
};

/// The frequencies of head_dim / 2 pairs in radians per position. Throws ConfigError for invalid
/// fields.
std::vector<double> rotary_frequencies(const Rotary& rotary, int64_t head_dim);
/// The factor of cosines and sines. It is 1 except for YaRN.
double rotary_factor(const Rotary& rotary);

}  // namespace ebb

#include "model_zoo/rotary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "device/errors.h"

namespace ebb {
namespace {

constexpr double kFullCircle = 2 * std::numbers::pi;

void check(const Rotary& r, int64_t head_dim) {
  const auto positive = [](std::string_view what, double value) {
    if (std::isfinite(value) && value > 0) return;
    throw ConfigError(fmt::format("rotary positions: {} is {}: it must be above 0", what, value));
  };
  if (head_dim <= 0 || head_dim % 2 != 0) {
    throw ConfigError(fmt::format(
        "rotary positions turn pairs of a head's elements: head_dim is {}, it must be even",
        head_dim));
  }
  positive("theta", r.theta);
  if (r.scaling == RotaryScaling::None) return;
  positive("factor", r.factor);
  if (r.scaling == RotaryScaling::Linear) return;
  positive("original_max_position_embeddings", r.original_max_positions);
  if (r.scaling == RotaryScaling::Llama3) {
    positive("low_freq_factor", r.low_freq_factor);
    if (r.high_freq_factor > r.low_freq_factor) return;
    throw ConfigError(
        fmt::format("rotary positions: high_freq_factor is {}: it must be above low_freq_factor, "
                    "which is {}",
                    r.high_freq_factor, r.low_freq_factor));
  }
  positive("beta_fast", r.beta_fast);
  positive("beta_slow", r.beta_slow);
  if (r.theta == 1) throw ConfigError("rotary positions: yarn needs a theta other than 1");
}

/// Interpolates slow pairs (long waves) and leaves fast pairs unchanged, with a ramp in between.
double scaled_as_llama3(const Rotary& r, double frequency) {
  const double turns = r.original_max_positions * frequency / kFullCircle;  // in trained length
  if (turns < r.low_freq_factor) return frequency / r.factor;
  if (turns > r.high_freq_factor) return frequency;
  const double share = (turns - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
  return (1 - share) * frequency / r.factor + share * frequency;
}

/// Pairs below `low` are unchanged; pairs above `high` are interpolated.
struct YarnRamp {
  double low, high;

  YarnRamp(const Rotary& r, int64_t head_dim) {
    const auto dims = static_cast<double>(head_dim);
    const auto pair_that_turns = [&](double times) {
      return dims * std::log(r.original_max_positions / (times * kFullCircle)) /
             (2 * std::log(r.theta));
    };
    low = pair_that_turns(r.beta_fast);
    high = pair_that_turns(r.beta_slow);
    if (r.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0);
    high = std::min(high, dims - 1);
    if (low == high) high += 0.001;
  }
  double interpolated_share(int64_t pair) const {
    return std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
  }
};

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

}  // namespace

std::vector<double> rotary_frequencies(const Rotary& r, int64_t head_dim) {
  check(r, head_dim);
  std::vector<double> frequencies;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    const double share = static_cast<double>(2 * i) / static_cast<double>(head_dim);
    const double frequency = std::pow(r.theta, -share);
    switch (r.scaling) {
      case RotaryScaling::None:
        frequencies.push_back(frequency);
        break;
      case RotaryScaling::Linear:
        frequencies.push_back(frequency / r.factor);
        break;
      case RotaryScaling::Llama3:
        frequencies.push_back(scaled_as_llama3(r, frequency));
        break;
      case RotaryScaling::Yarn: {
        const double slow = YarnRamp(r, head_dim).interpolated_share(i);
        frequencies.push_back(slow * frequency / r.factor + (1 - slow) * frequency);
        break;
      }
    }
  }
  return frequencies;
}

double rotary_factor(const Rotary& r) {
  if (r.scaling != RotaryScaling::Yarn) return 1;
  if (r.attention_factor) return *r.attention_factor;
  const bool both = r.mscale.value_or(0) != 0 && r.mscale_all_dim.value_or(0) != 0;
  if (!both) return yarn_mscale(r.factor, 1);
  return yarn_mscale(r.factor, *r.mscale) / yarn_mscale(r.factor, *r.mscale_all_dim);
}

}  // namespace ebb

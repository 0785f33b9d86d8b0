// How wrong a predicted step time may be.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>

namespace ebb::bench {

struct Tolerance {
  double error = 0;  ///< 0.1: 10 %

  bool allows(double found) const { return std::abs(found) <= error; }
  /// "off by +3.1 % of 10 %", and " EXCEEDED" where that is so.
  std::string text(double found) const {
    return fmt::format("off by {:+.1f} % of {:.0f} %{}", 100 * found, 100 * error,
                       allows(found) ? "" : " EXCEEDED");
  }
};

/// Kernels of emulated steps take exactly what is predicted. Real kernels on the host do not, least
/// of all the short ones of small models.
inline Tolerance tolerance_of(uint64_t num_parameters, bool emulated) {
  if (emulated) return {0.10};
  return {num_parameters < 100'000'000 ? 0.25 : 0.15};
}

}  // namespace ebb::bench

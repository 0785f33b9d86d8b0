// The tolerated error of a predicted step time.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>

namespace ebb::bench {

struct Tolerance {
  double error = 0;  ///< 0.1: 10 %

  bool allows(double found) const { return std::abs(found) <= error; }
  /// "off by +3.1 % of 10 %", with " EXCEEDED" if the error is larger than tolerated.
  std::string text(double found) const {
    return fmt::format("off by {:+.1f} % of {:.0f} %{}", 100 * found, 100 * error,
                       allows(found) ? "" : " EXCEEDED");
  }
};

/// Kernels of emulated steps take exactly the predicted time. Real kernels on the host do not, in
/// particular the short kernels of small models.
inline Tolerance tolerance_of(uint64_t num_parameters, bool emulated) {
  if (emulated) return {0.10};
  return {num_parameters < 100'000'000 ? 0.25 : 0.15};
}

}  // namespace ebb::bench

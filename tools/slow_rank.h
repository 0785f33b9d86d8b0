// Finds a rank that is much slower than the others. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ebb {

/// A rank is slow if two steps in a row took kMuchSlower times as long as on the others, and at
/// least kLeast_s longer. The first step is not counted: it loads kernels.
class SlowRank {
 public:
  static constexpr double kMuchSlower = 3;
  static constexpr double kLeast_s = 0.1;

  /// Called after each step, with the seconds that each rank worked for one of its micro-batches;
  /// waits for other ranks are not work. Returns a sentence about the first slow rank, once.
  std::optional<std::string> add(std::span<const double> seconds);

 private:
  bool is_first_ = true;
  bool is_reported_ = false;
  std::optional<uint32_t> suspect_;  // slow in the last step
};

}  // namespace ebb

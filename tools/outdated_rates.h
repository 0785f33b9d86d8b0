// Notices that the rates from which steps are predicted may be wrong: the machine was busy when
// they were measured, or steps take much longer than predicted. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/train_options.h"

namespace ebb {

/// From this share of the cores on, a measurement counts as disturbed.
inline constexpr double kBusyShare = 0.25;

/// The command that measures the rates of a run with these options again.
std::string measure_command(const TrainOptions& options);

/// A sentence about a measurement beside other processes; nullopt if they used few cores.
std::optional<std::string> busy_notice(double other_load, const TrainOptions& options);

/// Compares the median of steps 3 to 10 of a run with the predicted time.
class StepCheck {
 public:
  /// `predicted_s`: 0 if it is unknown.
  StepCheck(double predicted_s, const TrainOptions& options);
  /// Called after each step. Returns a sentence at most once, after step 10, if the median is
  /// kMuchLonger times the predicted time or more.
  std::optional<std::string> add(double step_s);

  static constexpr size_t kFirst = 3, kLast = 10;
  static constexpr double kMuchLonger = 1.3;

 private:
  double predicted_s_;
  std::string command_;
  std::vector<double> steps_s_;
};

}  // namespace ebb

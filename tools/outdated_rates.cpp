#include "tools/outdated_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace ebb {

std::string measure_command(const TrainOptions& options) {
  std::string text = "ebb plan --measure";
  const auto add = [&text](std::string_view flag, std::string_view value) {
    text += fmt::format(" --{} {}", flag, value);
  };
  if (!options.preset.empty()) add("preset", options.preset);
  if (!options.model.empty()) add("model", fmt::format("'{}'", options.model));
  if (options.dtype != DType::BF16) add("dtype", name_of(options.dtype));
  if (options.gradient_dtype) add("gradient-dtype", name_of(*options.gradient_dtype));
  if (options.device == DeviceChoice::Host) add("device", "host");
  if (options.threads > 0) add("threads", std::to_string(options.threads));
  return text;
}

std::optional<std::string> busy_notice(double other_load, const TrainOptions& options) {
  if (other_load < kBusyShare) return std::nullopt;
  return fmt::format(
      "rates: other processes used {:.0f} % of the cores while this machine was measured, so "
      "predictions are inexact; when it is idle, measure it again: `{}`",
      100 * other_load, measure_command(options));
}

StepCheck::StepCheck(double predicted_s, const TrainOptions& options)
    : predicted_s_(predicted_s), command_(measure_command(options)) {}

std::optional<std::string> StepCheck::add(double step_s) {
  if (predicted_s_ == 0 || steps_s_.size() >= kLast) return std::nullopt;
  steps_s_.push_back(step_s);
  if (steps_s_.size() < kLast) return std::nullopt;
  std::vector<double> later(steps_s_.begin() + (kFirst - 1), steps_s_.end());
  const auto middle = later.begin() + static_cast<std::ptrdiff_t>(later.size() / 2);
  std::nth_element(later.begin(), middle, later.end());
  if (*middle < kMuchLonger * predicted_s_) return std::nullopt;
  return fmt::format(
      "rates: steps {} to {} took {:.2f} x the predicted time (median {:.4g} s, predicted {:.4g} "
      "s), which changes no result. This is usual while other programs use the cores, and for "
      "steps as short as those of a small model; otherwise measure this machine again with `{}`",
      kFirst, kLast, *middle / predicted_s_, *middle, predicted_s_, command_);
}

}  // namespace ebb

// What to change when an evaluation or a generation does not fit: every change is planned like the
// original, and those that fit are named.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "device/device.h"
#include "scheduler/run/inference.h"
#include "tools/train_options.h"

namespace ebb {

/// Flags that an inference has, or could have instead.
struct InferenceFlags {
  TrainOptions options;
  uint64_t max_tokens = 0;  ///< of a generation
};

/// Plans with these flags. Models of its passes need not outlive the call: only numbers are read.
/// Throws PlanError where it does not fit.
using PlanInference =
    std::function<PreparedInference(const InferenceFlags& flags, const Budgets& budgets)>;

/// "--micro-batch-size 2": changes after which it fits on this device, one of each kind.
std::vector<std::string> changes_that_fit(const InferenceFlags& requested,
                                          const DeviceOptions& device, const PlanInference& plan);

}  // namespace ebb

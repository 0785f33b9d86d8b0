// The texts that `ebb plan` prints. Pure functions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/advice.h"
#include "tools/memory_advice.h"
#include "tools/plan_setup.h"

namespace ebb {

/// A line for each of: model, machine, step, memory, time, traffic, layers, plan.
std::vector<std::string> plan_lines(const PlanContext& context, const PlannedStep& step);
/// plan_lines(), what would make the plan faster, the table of candidates and the memory of each
/// class of bytes.
std::string format_plan(const PlanContext& context, const PlannedStep& step,
                        std::span<const Gain> gains);
std::string plan_json(const PlanContext& context, const PlannedStep& step,
                      std::span<const Gain> gains);

/// Tokens per second with the pessimistic and the optimistic rates of the machine.
struct Speed {
  double pessimistic = 0, optimistic = 0;
};
Speed speed_of(const PlannedStep& step);

/// Why a plan does not fit, and what to do.
struct Misfit {
  std::vector<std::string> request;  ///< request_lines(); format_misfit() prints them
  std::string why;
  std::optional<size_t> assumed_host_bytes = {};  ///< of the machine, without --host-memory
  /// Of this machine with enough host memory; nullopt if its device is too small.
  std::optional<Speed> with_unlimited_host = {};
  std::vector<MemoryAnswer> memory;
  std::vector<PlannedChange> changes;  ///< after which it fits
};
/// The lines with which the text of a plan begins: the model, the machine and the step. `type`: of
/// the weights.
std::vector<std::string> request_lines(const PlannedMachine& machine, const std::string& model,
                                       uint64_t num_parameters, DType type,
                                       const BatchShape& shape);
std::string format_misfit(const Misfit& misfit);
std::string misfit_json(const Misfit& misfit);

/// What the layers keep for the backward of a micro-batch, and what they recompute, in one line.
std::string layers_text(const Preparation& prepared);

}  // namespace ebb

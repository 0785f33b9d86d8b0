// What a run says before and after: the header with model, data, budget and where bytes live, and
// the results. Pure functions of their arguments.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tools/run_log.h"
#include "tools/spent_time.h"
#include "tools/train_options.h"
#include "tools/train_setup.h"

namespace ebb {

/// Model, data, step, device, chunks, machine, plan: a line each.
std::vector<std::string> header_lines(const TrainOptions& options, const TrainSetup& setup);
/// What a run shows before it starts, in six lines: model, data, step, device, where the bytes lie,
/// and the plan with its predicted time.
std::string format_brief_header(const TrainOptions& options, const TrainSetup& setup);
/// Everything: the lines, what the planner chose from, and where every class of bytes lies.
std::string format_header(const TrainOptions& options, const TrainSetup& setup);

/// What a step measured, and its bound on a machine as fast as that step's own kernels and
/// optimizer.
struct StepContext {
  uint64_t step = 0;  ///< from 0
  uint64_t epoch = 0;
  double learning_rate = 0;
  size_t device_peak_bytes = 0;
};
StepRecord make_record(const TrainSetup& setup, const StepContext& context,
                       const StepResult& result);

struct Summary {
  EndRecord end;
  uint64_t first_step = 0;  ///< where the run began, more where it was resumed
  double seconds = 0;       ///< of all steps from there
  SpentTime spent = {};     ///< where they went
  double last_loss = std::numeric_limits<double>::quiet_NaN();  ///< of a step that had labels
  uint64_t num_skipped = 0;
  size_t rss_before_bytes = 0;  ///< of the program alone, before the run took its memory
};
std::string format_summary(const TrainSetup& setup, const Summary& summary);

}  // namespace ebb

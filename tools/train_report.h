// The texts before and after a run: the header with model, data, budget and memory by class, and
// the results. Pure functions.
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

/// One line each for model, data, step, device, chunks, machine and plan.
std::vector<std::string> header_lines(const TrainOptions& options, const TrainSetup& setup);
/// The header that a run prints before it starts: one line each for model, data, step, device, the
/// largest classes of memory, and the plan with its predicted time.
std::string format_brief_header(const TrainOptions& options, const TrainSetup& setup);
/// The full header: the lines, the table of candidates, and the memory of every class.
std::string format_header(const TrainOptions& options, const TrainSetup& setup);

/// Values of a step that StepResult does not contain.
struct StepContext {
  uint64_t step = 0;  ///< from 0
  uint64_t epoch = 0;
  double learning_rate = 0;
  size_t device_peak_bytes = 0;
};
/// The log's record of a step. Its bound is that of a machine with the rates of this step's kernels
/// and optimizer.
StepRecord make_record(const TrainSetup& setup, const StepContext& context,
                       const StepResult& result);

struct Summary {
  EndRecord end;
  uint64_t first_step = 0;  ///< first step of this run; above 0 if it was resumed
  double seconds = 0;       ///< time of all steps of this run
  SpentTime spent = {};     ///< parts of `seconds`
  double last_loss =
      std::numeric_limits<double>::quiet_NaN();  ///< loss of the last step that had labels
  uint64_t num_skipped = 0;
  int signal = 0;               ///< that ended the run; 0: none did
  size_t rss_before_bytes = 0;  ///< RSS of the program before the run allocated its memory
  size_t sample_bytes = 0;      ///< memory of a sample (--sample-steps)
};
std::string format_summary(const TrainSetup& setup, const Summary& summary);

}  // namespace ebb

// The steps of `ebb train`: it trains, evaluates, writes samples, the log and the trace, and saves
// checkpoints, until the last step or a signal.
//
// Thread-safety: one thread. Errors: those of training and of the files.
#pragma once

#include <memory>
#include <optional>

#include "tools/checkpoint.h"
#include "tools/chrome_trace.h"
#include "tools/progress.h"
#include "tools/resume.h"
#include "tools/run_log.h"
#include "tools/signals.h"
#include "tools/train_report.h"
#include "tools/train_setup.h"

namespace ebb {

/// The request of the command line.
struct TrainRequest {
  TrainOptions options;
  std::optional<Resumed> resumed;
  RunConfig given;  // includes the flags of the checkpoint
};

/// The files to which a run appends; null: not requested.
struct RunFiles {
  std::unique_ptr<RunLog> log;
  std::unique_ptr<ChromeTrace> trace;
};

/// To be called before anything is measured, so that a file that cannot be written is found at
/// once. Only rank 0 opens files.
RunFiles open_files(const TrainOptions& options);

/// Runs all steps. `config`: what a checkpoint says about the run. `folder`: of checkpoints; null:
/// this rank saves none, or it is not rank 0.
Summary run_training(const TrainRequest& request, const TrainSetup& setup, const RunConfig& config,
                     const SaveFolder* folder, RunFiles files, RunProgress& progress,
                     const Signals& signals);

}  // namespace ebb

// Saves the checkpoints of a run, and decides what they contain.
//
// Each rank has a RunSaver. All methods are called from one thread, and are collective. Errors: as
// CheckpointWriter.
#pragma once

#include <cstdint>
#include <string>

#include "scheduler/run/trainer.h"
#include "tools/checkpoint_writer.h"
#include "tools/resume.h"

namespace ebb {

class RunSaver {
 public:
  /// `setup` and `folder` must outlive this object. `folder`: null on other ranks than rank 0.
  /// `run_id`: the same on all ranks.
  RunSaver(const TrainOptions& options, const TrainSetup& setup, const SaveFolder* folder,
           RunConfig config, std::string run_id, const RunPosition& start, Notice notice);

  /// Throws the error of a failed save.
  void check() { writer_.check(); }
  /// Starts a save, which waits for the one before, unless this step is saved already. `log_line`
  /// is the log's line of the step.
  void save(Trainer& trainer, const RunPosition& position, std::string log_line,
            const BestEvaluation& best);
  /// Waits until the last save is complete.
  void finish() { writer_.finish(); }

 private:
  const TrainSetup& setup_;
  const RunConfig config_;
  const std::string run_id_;
  const DataHashes hashes_;  // when the run started
  const std::string written_by_;
  uint64_t saved_step_;
  CheckpointWriter writer_;
};

/// The progress of a run that began at `start`.
RunPosition position_at(uint64_t step, const RunPosition& start, const BatchShape& shape);

}  // namespace ebb

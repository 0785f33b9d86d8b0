// When a run saves, and what of it.
//
// One thread calls it. Errors: as CheckpointWriter.
#pragma once

#include <cstdint>
#include <string>

#include "scheduler/run/trainer.h"
#include "tools/checkpoint_writer.h"
#include "tools/resume.h"

namespace ebb {

class RunSaver {
 public:
  /// `setup` and `folder` must outlive it.
  RunSaver(const TrainOptions& options, const TrainSetup& setup, const SaveFolder& folder,
           RunConfig config, const RunPosition& start, Notice notice);

  /// Throws what a save failed with.
  void check() { writer_.check(); }
  bool due(uint64_t step) const;
  /// Starts a save, unless this step is saved already.
  void save(Trainer& trainer, const RunPosition& position);
  /// The last one is complete.
  void finish() { writer_.finish(); }

 private:
  const TrainSetup& setup_;
  const uint64_t interval_;
  const RunConfig config_;
  uint64_t saved_step_;
  CheckpointWriter writer_;
};

/// Where a run is that began at `start`.
RunPosition position_at(uint64_t step, const RunPosition& start, const BatchShape& shape);

}  // namespace ebb

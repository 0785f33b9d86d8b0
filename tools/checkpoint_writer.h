// Saves checkpoints beside the training, on a thread of its own: one at a time, each whole or not
// at all.
//
// The state is borrowed (scheduler/run/state_reader.h): whole until the weights are written and
// synced, then parameter by parameter. Renaming and removing what is old hold up nothing. A save
// that fails removes what it wrote, leaves the checkpoints before it as they are, and ends the run:
// check(), save() or finish() throws.
//
// One thread calls it. Errors: IoError that says what a checkpoint takes and what is free.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "scheduler/run/trainer.h"
#include "tools/checkpoint.h"

namespace ebb {

struct CheckpointContents {
  /// Writes weights, synced, to a folder; may be empty.
  std::function<void(const StateReader& reader, const std::string& folder)> write_weights;
  bool with_state = true;
  uint64_t bytes = 0;  ///< of weights and state, and 1 MiB for the rest
};

class CheckpointWriter {
 public:
  /// `keep`: how many checkpoints stay; 0: all. The writing thread calls `notice` for each saved
  /// checkpoint, and for each old one that cannot be removed.
  CheckpointWriter(const SaveFolder& folder, uint64_t keep, CheckpointContents contents,
                   Notice notice);
  /// Waits for what is being written.
  ~CheckpointWriter();

  /// Waits for the save before, and starts this one. The trainer outlives it.
  void save(SavedRun run, Trainer& trainer);
  /// Throws what a save has failed with so far.
  void check();
  /// Waits for what is being written.
  void finish();

 private:
  void write(const SavedRun& run, StateReader reader) const;
  void write_files(const SavedRun& run, StateReader reader) const;

  const SaveFolder& folder_;
  const uint64_t keep_;
  const CheckpointContents contents_;
  const Notice notice_;
  std::mutex mutex_;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace ebb

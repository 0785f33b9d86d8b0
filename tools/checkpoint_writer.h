// Saves checkpoints on a thread of its own, concurrently with the training. Checkpoints are written
// one at a time, each completely or not at all.
//
// The state is locked (scheduler/run/state_reader.h): all of it until the weights are written and
// synced, then one parameter after another is released. The training does not wait while old
// checkpoints are renamed and removed. A save that fails removes its files, leaves earlier
// checkpoints unchanged, and ends the run: check(), save() or finish() throws.
//
// All methods are called from one thread. Errors: IoError with the size of a checkpoint and the
// free space.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "scheduler/run/trainer.h"
#include "tools/checkpoint.h"
#include "tools/saved_run.h"

namespace ebb {

struct CheckpointContents {
  /// Writes weights, synced, to a folder; may be empty.
  std::function<void(const StateReader& reader, const std::string& folder)> write_weights;
  bool with_state = true;
  bool keeps_best = false;  ///< the checkpoint of SavedRun::best is kept and linked
  uint64_t bytes = 0;       ///< weights and state, and 1 MiB for the other files
};

class CheckpointWriter {
 public:
  /// `keep`: how many checkpoints are kept; 0: all. The writing thread calls `notice` for each
  /// saved checkpoint, and for each old one that cannot be removed.
  CheckpointWriter(const SaveFolder& folder, uint64_t keep, CheckpointContents contents,
                   Notice notice);
  /// Waits for the current save.
  ~CheckpointWriter();

  /// Waits for the previous save and starts this one. The trainer must outlive the writer.
  void save(SavedRun run, Trainer& trainer);
  /// Throws the error of a failed save.
  void check();
  /// Waits for the current save.
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

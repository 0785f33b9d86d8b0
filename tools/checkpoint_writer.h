// Saves checkpoints on a thread of its own, concurrently with the training. Checkpoints are written
// one at a time, each completely or not at all.
//
// The state is locked (scheduler/run/state_reader.h): all of it until the weights are written, then
// one parameter after another is released. The training does not wait while files are synced and
// old checkpoints are renamed and removed. A save that fails removes its files, leaves earlier
// checkpoints unchanged, and ends the run: check(), save() or finish() throws.
//
// With several ranks, each has a writer, which locks and writes the chunks that the rank owns
// (model_zoo/checkpoint_part.h). Rank 0 creates the files; check() and finish() find out whether
// all ranks have written; then rank 0 completes the checkpoint. For a rank that does not see the
// files, because it has another file system, rank 0 writes, and no rank trains meanwhile. If a
// rank fails before all have written, the checkpoint is not made.
//
// All methods are called from one thread; save(), check() and finish() are collective. Errors:
// IoError with the size of a checkpoint and the free space; RankLost.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/ranks.h"
#include "model_zoo/checkpoint_part.h"
#include "scheduler/run/trainer.h"
#include "tools/checkpoint.h"
#include "tools/saved_run.h"

namespace ebb {

struct CheckpointContents {
  CheckpointFiles files;
  /// Writes config.json, the tokenizer and similar files, synced, to a folder.
  std::function<void(const std::string& folder)> write_companions;
  bool keeps_best = false;  ///< the checkpoint of SavedRun::best is kept and linked
  uint64_t bytes = 0;       ///< weights and state, and 1 MiB for the other files
};

class CheckpointWriter {
 public:
  /// `folder`: null on other ranks than rank 0. `ranks`: null if there is one rank. `keep`: how
  /// many checkpoints are kept; 0: all. `notice` is called, also by the writing thread, for each
  /// saved checkpoint, for each old one that cannot be removed, and for ranks that do not see the
  /// files.
  CheckpointWriter(const SaveFolder* folder, Ranks* ranks, uint64_t keep,
                   CheckpointContents contents, Notice notice);
  /// A run of one rank waits for the current save. In a run of several ranks, the thread of each
  /// rank stops writing, and the checkpoint is not made unless all have written.
  ~CheckpointWriter();

  /// Waits for the previous save and starts this one. All ranks give the same run. The trainer must
  /// outlive the writer.
  void save(SavedRun run, Trainer& trainer);
  /// Does not wait for ranks that still write. If all have written, starts the completion on rank
  /// 0. Throws the error of a failed save of this rank.
  void check();
  /// Waits for the current save.
  void finish();

 private:
  struct Save;

  template <class Work>
  void start(Save& save, Work work);
  void join();
  void rethrow();
  bool has_ended();
  template <class Work>
  void naming_step(Save& save, Work&& work) const;
  uint64_t free_bytes(const Save& save) const;

  void begin(Save& save, const StateReader& reader) const;
  bool share_out(Save& save, const StateReader& reader);
  void write(Save& save, StateReader reader) const;
  void gather();
  void complete(Save& save) const;
  void progress() const;

  const SaveFolder* const folder_;
  Ranks* const ranks_;
  const uint64_t keep_;
  const CheckpointContents contents_;
  const Notice notice_;
  std::unique_ptr<Save> save_;
  bool is_writing_ = false;  // with several ranks: not all have written, as far as this rank knows
  bool has_said_ = false;    // that a rank does not see the files
  std::atomic<bool> is_abandoned_ = false;  // by the destructor
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_ended_ = false;  // the thread has done its work, or has failed
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace ebb

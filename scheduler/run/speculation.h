// Decides whether a step makes speculative updates, and keeps their undo logs (cpu_adam/undo.h).
//
// A speculative update assumes a clip scale of 1. Speculation goes on as long as the gradients that
// are in host memory so far have a norm that is finite and gives a clip scale of exactly 1. After a
// step whose updates are rolled back, the next step makes no speculative updates: it waits. If the
// first step that speculates again is rolled back too, the number of waiting steps doubles, up to
// 64. A step whose updates are committed sets this number back to one. If no chunk has a
// speculative update, this class does nothing.
//
// In each step, begin_step() comes first. Then, for each chunk whose gradient arrives, may_commit()
// is called, and count() if the update was tried. decide() comes last. The deferred updates of the
// next step call take_committed().
//
// Thread-safety: begin_step(), num_made() and num_rolled_back() run on the program thread while no
// step runs. All other functions run on the host thread of the update stream, but while no step
// runs, the program thread may also call made() and log().
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "chunk/chunk_record.h"
#include "chunk/layout.h"
#include "cpu_adam/undo_log.h"
#include "device/device.h"

namespace ebb {

class Speculation {
 public:
  /// A speculative update that this step has made.
  struct Made {
    ChunkIndex chunk;
    BufferIndex gradient_buffer;
  };

  /// `chunks`: what the plan decides about each parameter chunk. Allocates an undo log for each
  /// chunk with a speculative update.
  Speculation(Device& device, const Layout& layout, std::span<const ChunkRecord> chunks,
              float max_grad_norm);

  /// Does not empty the undo logs of the step before: the deferred update of each chunk, which runs
  /// in this step, empties the log by take_committed() or by redo_update() (cpu_adam/undo.h).
  void begin_step(double loss_scale);
  /// Adds the partial norms of a chunk whose gradient has been stored in host memory. Returns
  /// whether a speculative update of the chunk may still be committed. The gradient contains the
  /// factor of the loss scale.
  bool may_commit(std::span<const double> partials);
  /// Adds the update of a chunk to made(). `fits` is the result of update_with_log(): if it is
  /// false, the undo log was too small, the chunk has its old state, and nothing is added.
  void count(ChunkIndex chunk, BufferIndex gradient_buffer, bool fits);
  /// Called when the norm is known. Commits the updates of this step, or records that they must be
  /// rolled back; the caller rolls them back. The undo logs stay full, because the step may still
  /// throw.
  void decide(bool committed);

  /// The speculative updates of this step, in the order in which they were made.
  std::span<const Made> made() const { return made_; }
  /// The undo log of a chunk; null if the plan has no speculative update of the chunk.
  UndoLog* log(ChunkIndex chunk) { return log_of_[chunk]; }
  /// Returns true if the chunk has a committed update, and then empties its undo log. A second call
  /// returns false.
  bool take_committed(ChunkIndex chunk);

  /// Numbers of updates of the last step.
  uint32_t num_made() const { return static_cast<uint32_t>(made_.size()); }
  uint32_t num_rolled_back() const { return num_rolled_back_; }

 private:
  float max_grad_norm_;
  Buffer memory_;
  std::deque<UndoLog> logs_;
  std::vector<UndoLog*> log_of_;  // [parameter chunk]
  std::vector<Made> made_;        // the speculative updates of this step
  bool committed_ = false;        // the updates whose logs are full are committed
  uint32_t num_rolled_back_ = 0;
  bool may_commit_ = false;
  double sum_ = 0, loss_scale_ = 1;
  uint32_t steps_to_wait_ = 0, next_wait_ = 1;
};

}  // namespace ebb

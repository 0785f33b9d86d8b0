// Decides whether a step makes speculative updates, and keeps their undo logs (cpu_adam/undo.h).
//
// A speculative update assumes a clip scale of 1. Speculation goes on as long as the gradients that
// are in host memory so far have a norm that is finite and gives a clip scale of exactly 1. After a
// step whose updates are rolled back, the next step does not speculate. Each further failure
// doubles the number of such steps, up to 64; a step whose updates are committed sets it back to
// one. Without chunks this class does nothing.
//
// Thread-safety: all functions run on the update stream, but the program thread calls begin_step(),
// num_made() and num_rolled_back() between steps.
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
  struct Made {
    ChunkIndex chunk;
    BufferIndex gradient_buffer;
  };

  /// `chunks`: what the plan decides about each parameter chunk. Allocates an undo log for each
  /// chunk with a speculative update.
  Speculation(Device& device, const Layout& layout, std::span<const ChunkRecord> chunks,
              float max_grad_norm);

  /// Keeps the undo logs of the step before until take_committed() or a redo empties them.
  void begin_step(double loss_scale);
  /// Adds the partial norms of a chunk whose gradient has been stored in host memory. Returns
  /// whether a speculative update of the chunk may still be committed. The gradient contains the
  /// factor of the loss scale.
  bool may_commit(std::span<const double> partials);
  /// Counts the update of a chunk, unless its undo log had no room (`fits` is false).
  void count(ChunkIndex chunk, BufferIndex gradient_buffer, bool fits);
  /// Called when the norm is known: commits the updates of this step, or notes that they must be
  /// rolled back. The undo logs are kept, because the step may still throw.
  void decide(bool committed);

  std::span<const Made> made() const { return made_; }
  /// The undo log of a chunk; null if the plan has no speculative update of the chunk.
  UndoLog* log(ChunkIndex chunk) { return log_of_[chunk]; }
  /// Whether the chunk has a committed update. If so, empties its undo log, so that the next call
  /// returns false.
  bool take_committed(ChunkIndex chunk);

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

// Which updates of a step were made in the hope that clipping will not bite, and whether to hope.
//
// There is hope while the gradients that are home leave the clip's scale at exactly 1, and a
// chunk's log (cpu_adam/undo.h) has room; what is left of the gradient's scale is then the loss
// scale, which is known. A step in which it was in vain is followed by steps without: one, then
// two, up to 64, until a step's hope comes true. Without chunks it does nothing.
//
// Thread-safety: on the update stream, except begin_step() and the counts, between steps.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "chunk/layout.h"
#include "cpu_adam/undo_log.h"
#include "device/device.h"

namespace ebb {

class Speculation {
 public:
  struct Made {
    uint32_t chunk = 0;
    uint32_t gradient_buffer = 0;
  };

  /// `chunks` ascend; takes the memory of a log for each.
  Speculation(Device& device, const Layout& layout, std::vector<uint32_t> chunks,
              float max_grad_norm);

  /// What the step before has left stays until it is taken.
  void begin_step(double loss_scale);
  /// `partials`: of the chunk whose gradient came home, as it is there: times the loss scale.
  bool may_commit(std::span<const double> partials);
  /// An update was made, or did not fit.
  void count(uint32_t chunk, uint32_t gradient_buffer, bool fits);
  /// The norm is known: do the updates that were made stand? Their logs are kept until they are
  /// taken, as the step may still throw.
  void decide(bool committed);

  std::span<const Made> made() const { return made_; }
  /// Nullptr where the plan does not speculate.
  UndoLog* log(uint32_t chunk);
  /// Was the chunk's update made, and stands? True once.
  bool take_committed(uint32_t chunk);

  uint32_t num_made() const { return static_cast<uint32_t>(made_.size()); }
  uint32_t num_rolled_back() const { return num_rolled_back_; }

 private:
  size_t index_of(uint32_t chunk) const;

  std::vector<uint32_t> chunks_;
  float max_grad_norm_;
  Buffer memory_;
  std::deque<UndoLog> logs_;  // of each chunk
  std::vector<Made> made_;    // in this step
  bool committed_ = false;    // those whose logs are there
  uint32_t num_rolled_back_ = 0;
  bool may_commit_ = false;
  double sum_ = 0, loss_scale_ = 1;
  uint32_t steps_to_wait_ = 0, next_wait_ = 1;
};

}  // namespace ebb

// What a finished gradient and an update mean: rounding, norms, clipping, AdamW at home.
//
// A step's gradients are summed in fp32 on the device, rounded once to the gradient type, and their
// squares summed in fixed pieces; norm and AdamW see only what was rounded. With clipping, or in
// fp16, the update waits for the norm, and a norm that is not a number skips it; otherwise a
// gradient that is not a number is a NumericError that names the first tensor. Updates that a plan
// carries into the next step are made there with what this step decided. Chunks that the plan
// updates on the device have their state there (device_state.h).
//
// In a rehearsal no kernel writes the partial norms: they stay the zeros of their buffer, so the
// norm is 0, nothing is skipped and every update does its full work on what came home as gradients.
//
// submit_* run on the program thread, norm and update on the update stream.
#pragma once

#include <string>
#include <vector>

#include "chunk/home.h"
#include "chunk/layout.h"
#include "cpu_adam/adamw.h"
#include "device/device.h"
#include "scheduler/run/device_state.h"
#include "scheduler/run/executor.h"
#include "scheduler/run/speculation.h"
#include "scheduler/run/state.h"
#include "scheduler/run/state_lock.h"
#include "scheduler/run/state_reader.h"
#include "scheduler/search/options.h"
#include "system/thread_team.h"

namespace ebb {

class Optimizer : public ChunkWork {
 public:
  /// `device_state`: of the plan's device updates; `trained[p]`: the step has a gradient for
  /// parameter p; others keep their values.
  Optimizer(Device& device, const Layout& layout, DeviceSpaces& spaces, const Home& home,
            const State& state, DeviceState& device_state, std::vector<bool> trained,
            const Plan& plan, const TrainerOptions& options);

  void begin_step(double learning_rate);
  /// The step threw, and nothing runs any more: the state becomes that before it, unless something
  /// is in the way (see Trainer::step()): was it?
  bool roll_back();

  void submit_round(Stream& compute, uint32_t chunk) override;
  void submit_partial_norms(Stream& store, uint32_t chunk) override;
  void submit_update(Stream& compute, uint32_t chunk) override;
  void norm() override;
  void update(uint32_t chunk, uint32_t gradient_buffer, bool deferred) override;
  void speculate(uint32_t chunk, uint32_t gradient_buffer, bool late) override;
  Cost update_cost(uint32_t chunk) const override;

  /// Are updates of the last step left to do?
  bool has_deferred() const { return has_deferred_; }
  /// They are done.
  void forget_deferred() { has_deferred_ = false; }

  /// What the gradient of the loss must be multiplied with in the step that begins.
  uint32_t loss_scale() const { return counters_.loss_scale.value; }

  /// Of the run, from 0: skipped ones count.
  uint32_t step() const {
    return static_cast<uint32_t>(counters_.num_updates) +
           static_cast<uint32_t>(counters_.num_skipped);
  }

  // After a step.
  double grad_norm() const { return grad_norm_; }
  bool skipped() const { return skipped_; }
  const OptimizerCounters& counters() const { return counters_; }
  const Speculation& speculation() const { return speculation_; }
  /// The first tensor, in call order, whose gradient at home is not a number; REQUIRES: skipped().
  std::string first_bad_tensor() const;

  /// Goes on from there. REQUIRES: !has_deferred().
  void restore(const OptimizerCounters& counters) { counters_ = counters; }
  /// Where updates wait for the state: at home, and before one on the device is submitted.
  StateLock& state_lock() { return state_lock_; }

 private:
  struct Run {  // of elements in one chunk: finished in one go
    uint64_t first;
    uint64_t count;
    bool trained;
    uint64_t second_sum;  // where the sums of a second use begin; kNoSum: nowhere
  };
  static constexpr uint64_t kNoSum = UINT64_MAX;
  bool is_finite(uint32_t chunk) const;
  [[noreturn]] void throw_not_a_number(const std::string& tensor) const;
  std::string bad_piece_in(uint32_t chunk) const;
  bool has_second_sum(const Segment& segment) const;
  uint64_t second_sum(const Segment& segment) const;
  void cut_runs();
  void cut_updates();
  AdamWStep early_step() const;
  static float gradient_scale(float clip, uint32_t loss_scale);
  Planes planes_of(uint32_t chunk, uint32_t gradient_buffer) const;
  int64_t num_elements(uint32_t chunk) const;
  std::span<const AdamWRange> updates_of(uint32_t chunk) const;
  void make_deferred(uint32_t chunk, uint32_t gradient_buffer);
  void undo_all();
  void add_extra_uses(Stream& compute, uint32_t chunk);
  std::span<double> partials_of(uint32_t chunk, std::span<double> all) const;
  std::string bad_tensor_in(uint32_t chunk, const std::byte* gradient) const;

  Kernels& kernels_;
  const Layout& layout_;
  DeviceSpaces& spaces_;
  const Home& home_;
  const State& state_;
  std::vector<bool> trained_;
  std::vector<DeferredUpdate> deferred_;  // what every step leaves to the next
  DeviceState& device_state_;
  const float max_grad_norm_;
  const bool after_norm_;  // updates wait for it
  const bool is_scaled_;   // the loss's gradient
  const bool speculates_late_;
  std::vector<Run> runs_;
  std::vector<uint32_t> first_run_;     // of each chunk, and one past the last
  std::vector<AdamWRange> updates_;     // what trains; elements count from their chunk's first
  std::vector<uint32_t> first_update_;  // of each chunk, and one past the last
  Buffer device_partials_;
  ThreadTeam team_;

  double learning_rate_ = 0;  // of the step that runs
  AdamW adam_;
  AdamWStep decided_;  // by the last norm: for updates that come after it
  bool has_deferred_ = false;
  double grad_norm_ = 0;
  bool skipped_ = false;
  OptimizerCounters counters_;
  struct {  // the step that runs
    OptimizerCounters counters;
    bool has_deferred = false;
  } before_;
  size_t num_deferred_made_ = 0;  // in this step
  bool is_touched_ = false;       // the state, by an update of this step that cannot be undone
  StateLock state_lock_;
  Speculation speculation_;
};

}  // namespace ebb

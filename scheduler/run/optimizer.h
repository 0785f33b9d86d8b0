// The work of a training step on gradients and on the training state: rounding, the gradient norm,
// clipping, AdamW.
//
// The gradients of a step are summed in fp32 on the device and rounded once to the gradient type.
// The squares of the rounded gradients are summed in pieces of fixed size. The norm and AdamW use
// only the rounded gradients. "Not a number" means infinite or NaN here. With clipping, and in
// fp16, updates wait for the norm, and so do delayed updates. If the norm is not a number, all
// updates of the step are skipped. In all other runs a gradient that is not a number throws a
// NumericError that names the first tensor. A deferred update runs in the next step, with the clip
// scale and the learning rate of the step that computed the gradient. The state of chunks with
// device updates is on the device (device_state.h).
//
// With several ranks, each rank makes the gradients and the updates of its own chunks. It adds the
// sums of groups on the host, or on its GPU (scheduler/plan/groups.h). Then the state of a chunk
// may be on the device of its owner, whose GPU updates it (ChunkRecord::is_on_owner).
//
// In an emulated step no kernel writes the partial norms, so they stay zeros. The norm is then 0,
// no step is skipped, and every update does its full work on the bytes in the gradient buffers.
//
// Thread-safety: scheduler/run/chunk_work.h says which thread calls the functions of ChunkWork. The
// program thread calls all others while no step runs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/home.h"
#include "chunk/layout.h"
#include "cpu_adam/adamw.h"
#include "device/device.h"
#include "scheduler/run/device_state.h"
#include "scheduler/run/executor.h"
#include "scheduler/run/part_slots.h"
#include "scheduler/run/rank_messages.h"
#include "scheduler/run/speculation.h"
#include "scheduler/run/state.h"
#include "scheduler/run/state_lock.h"
#include "scheduler/run/state_reader.h"
#include "scheduler/run/sums_of_groups.h"
#include "scheduler/search/options.h"
#include "system/thread_team.h"

namespace ebb {

class Optimizer : public ChunkWork {
 public:
  /// All arguments except `trained` and `options` must outlive the optimizer. `device_state` has
  /// the state of the chunks with device updates. trained[p] is true if a step computes a gradient
  /// of parameter p. The other parameters are never changed. `ranks`: null if there is only one;
  /// then `plan` must outlive the optimizer, too. `pinned_sums`: for DeviceAdder, if there is one.
  Optimizer(Device& device, const Layout& layout, DeviceSpaces& spaces, Home& home,
            const State& state, DeviceState& device_state, std::vector<bool> trained,
            const Plan& plan, const TrainerOptions& options, Ranks* ranks, Buffer pinned_sums);

  /// Called once before each step. REQUIRES: no work of the step before is running.
  void begin_step(double learning_rate);
  /// Restores the state and the counters to their values before the current step, but with the
  /// deferred updates of the step before. Returns false if this is not possible (Trainer::step()
  /// lists the cases). REQUIRES: the step threw, and no work is running.
  bool roll_back();

  // These functions are described in chunk_work.h.
  void submit_round(Stream& compute, ChunkIndex chunk) override;
  void submit_partial_norms(Stream& store, ChunkIndex chunk) override;
  void submit_update(Stream& compute, ChunkIndex chunk) override;
  void norm() override;
  void update(ChunkIndex chunk, BufferIndex gradient_buffer, bool deferred) override;
  void speculate(ChunkIndex chunk, BufferIndex gradient_buffer, bool late) override;
  void load_part(Stream& load, const Op& op, const std::byte* weights) override;
  void gather(Stream& load, const Op& op, std::byte* to) override;
  void submit_sums(Stream& store, const Op& op, std::span<const std::byte> sums) override;
  void add_groups(const Op& op) override;
  void round_total(const Op& op) override;
  void send(const Op& op) override { messages_->send(op); }
  void receive(const Op& op) override { messages_->receive(op); }
  void fetch(const Op& op) override { messages_->fetch(op); }
  void stopped(std::string_view error) noexcept override;
  Cost update_cost(ChunkIndex chunk) const override;

  /// True if deferred or delayed updates of the last step, of this rank or of another one, have not
  /// run yet.
  bool has_deferred() const { return has_deferred_; }
  /// Must be called after the plan of a step, unless it threw. If it made delayed updates, the next
  /// plan computes with the weights that they wrote.
  void end_step();
  /// Must be called before a flush plan runs.
  void begin_flush();
  /// Must be called after a flush, whether a plan was needed or not, when all ranks have made their
  /// updates.
  void end_flush();

  /// The factor with which the next step multiplies the gradient of the loss. It is 1 unless the
  /// weights are fp16.
  uint32_t loss_scale() const { return counters_.loss_scale.value; }

  /// The number of the next step, counted from 0; skipped steps count.
  uint32_t step() const {
    return static_cast<uint32_t>(counters_.num_updates) +
           static_cast<uint32_t>(counters_.num_skipped);
  }

  // The results of the last step.
  /// The norm of all gradients before clipping, without the loss scale.
  double grad_norm() const { return grad_norm_; }
  /// True if the norm was not a number, so that the step changed no parameter.
  bool skipped() const { return skipped_; }
  const OptimizerCounters& counters() const { return counters_; }
  const Speculation& speculation() const { return speculation_; }
  /// The name of the first tensor, in call order, whose gradient is not a number, or a remark if
  /// all gradients are finite and only their sum is not. REQUIRES: skipped(); no later step has
  /// begun.
  std::string first_bad_tensor() const;

  /// Continues from these counters, for example those of a checkpoint. REQUIRES: !has_deferred().
  void restore(const OptimizerCounters& counters) { counters_ = counters; }
  /// The lock for which updates wait. A host update waits when it runs. A device update waits
  /// before it is submitted.
  StateLock& state_lock() { return state_lock_; }

 private:
  struct Run {  // a range of elements of one chunk that one kernel rounds
    uint64_t first;
    uint64_t count;
    bool trained;
    uint64_t second_sum;  // the first element of the gradient sums of a second use, or kNoSum
  };
  static constexpr uint64_t kNoSum = UINT64_MAX;
  bool is_finite(ChunkIndex chunk) const;
  const std::byte* owner_weights(ChunkIndex chunk) const;
  void check_unchecked_gradients() const;
  [[noreturn]] void throw_not_a_number(const std::string& tensor) const;
  std::string bad_piece_in(ChunkIndex chunk) const;
  bool has_second_sum(const Segment& segment) const;
  uint64_t second_sum(const Segment& segment) const;
  void cut_runs();
  void cut_updates();
  void load_update_kernel();
  AdamWStep early_step() const;
  static float gradient_scale(float clip, uint32_t loss_scale);
  Planes planes_of(ChunkIndex chunk, BufferIndex gradient_buffer) const;
  int64_t num_elements(ChunkIndex chunk) const;
  std::span<const AdamWRange> updates_of(ChunkIndex chunk) const;
  std::byte* gradient_of(ChunkIndex chunk, BufferIndex gradient_buffer) const;
  bool is_updated_by_gpu(ChunkIndex chunk) const;
  void make_update(ChunkIndex chunk, BufferIndex gradient_buffer, const AdamWStep& step);
  void make_deferred(ChunkIndex chunk, BufferIndex gradient_buffer);
  void undo_all();
  void add_extra_uses(Stream& compute, ChunkIndex chunk);
  std::span<double> partials_of(ChunkIndex chunk, std::span<double> all) const;
  std::string bad_tensor_in(ChunkIndex chunk) const;

  Kernels& kernels_;
  const Layout& layout_;
  DeviceSpaces& spaces_;
  Home& home_;
  const State& state_;
  std::vector<bool> trained_;
  const std::vector<ChunkRecord>& chunks_;  // [parameter chunk] what every step does with it
  const uint32_t num_deferred_;             // updates of this rank that every step defers
  const bool leaves_updates_;               // a step defers updates, of this rank or of another one
  DeviceState& device_state_;
  const float max_grad_norm_;
  const bool after_norm_;  // updates wait for the norm
  const bool is_scaled_;   // the gradient of the loss is scaled
  const bool speculates_late_;
  std::vector<Run> runs_;
  std::vector<uint32_t> first_run_;     // of each chunk, and one past the last
  std::vector<AdamWRange> updates_;     // trained ranges; elements count from the chunk's first
  std::vector<uint32_t> first_update_;  // of each chunk, and one past the last
  Buffer device_partials_;
  ThreadTeam team_;

  double learning_rate_ = 0;  // of the current step
  AdamW adam_;
  AdamWStep decided_;  // the values for the updates that wait for the last norm
  bool has_deferred_ = false;
  double grad_norm_ = 0;
  bool skipped_ = false;
  OptimizerCounters counters_;
  struct {  // the values before the current step
    OptimizerCounters counters;
    bool has_deferred = false;
  } before_;
  size_t num_deferred_made_ = 0;  // in the current step
  bool is_touched_ = false;       // an update of the current step that has no undo log has started
  const bool emulates_compute_;
  Ranks* const ranks_;
  std::optional<RankMessages> messages_;  // with several ranks
  std::optional<SumsOfGroups> sums_;      // if sums of groups are stored
  std::optional<PartSlots> part_slots_;   // if loads are split
  StateLock state_lock_;
  Speculation speculation_;
};

}  // namespace ebb

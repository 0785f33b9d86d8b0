// Trains a model whose state is in host memory, or partly on the device, which holds as much of it
// as its budget allows.
//
//   auto device = create_device({.memory_bytes = 256 << 20});
//   Preparation prepared = prepare(model, options, {.device_memory = 256 << 20});
//   Trainer trainer(model, *device, prepared);
//   StepResult r = trainer.step({&micro_batch, 1}, learning_rate);
//
// The Trainer takes all memory when it is made. After the first two steps, a step allocates
// nothing. One thread calls a Trainer. The results of a step depend on model, data, seed and the
// options of the arithmetic only, never on budgets, chunk size, recomputation or threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "chunk/layout.h"
#include "device/device.h"
#include "scheduler/run/micro_batch.h"
#include "scheduler/run/state_reader.h"
#include "scheduler/search/preparation.h"

namespace ebb {

/// In a rehearsal (DeviceInfo::pretended) losses and norms are not numbers: nothing computed them.
/// Everything else is real, the update included: it takes what the device sent for gradients.
struct StepResult {
  double loss = 0;          ///< mean over all targets of the step
  double grad_norm = 0;     ///< before clipping, of gradients without the loss scale
  bool skipped = false;     ///< the norm was not a number; weights stayed as they were
  uint32_t loss_scale = 1;  ///< fp16: that this step was made with
  uint64_t num_targets = 0;
  double step_s = 0;
  double compute_s = 0;  ///< running kernels
  double stall_s = 0;    ///< compute idle before its last operation ended
  double update_s = 0;   ///< the optimizer at work
  double overlap_s = 0;  ///< both at once: on the host they then share the cores
  size_t loaded_bytes = 0;
  size_t stored_bytes = 0;
  uint32_t speculated_chunks = 0;   ///< updated before the norm was known
  uint32_t rolled_back_chunks = 0;  ///< of those: clipping did bite, or the norm was not a number
};

/// One step after the other. Updates that overlap with the next step's forward are made there, or
/// when somebody looks at the weights: evaluate(), state_hash(), read_ and write_parameter(). These
/// also end what the device holds from step to step of what lives at home; the next step loads it
/// anew.
class Trainer {
 public:
  /// `model`, `device` and `prepared` must outlive the trainer. Weights are initialised from the
  /// seed.
  Trainer(const Model& model, Device& device, const Preparation& prepared);
  ~Trainer();

  /// REQUIRES: as many micro-batches as options.gradient_accumulation. Throws NumericError where a
  /// gradient is not a number and cannot be skipped. After a throw the trainer must not be used,
  /// but to look at the state, which is that before the step (with all skipped steps counted); a
  /// LogicError where that is lost: where updates do not wait for the norm or for the next step, or
  /// the device makes some, or an update of the step before failed.
  StepResult step(std::span<const MicroBatch> micro_batches, double learning_rate);
  /// Mean loss without gradients; not a number in a rehearsal. REQUIRES: options.evaluation_batches
  /// micro-batches. After a throw as after one of step(): the state is that of the last step.
  double evaluate(std::span<const MicroBatch> micro_batches);

  /// When the operations of the prepared plan ran in the last step; until the next call.
  std::span<const OpTime> last_step_times() const;

  /// Updates made so far (Adam's t): steps less the skipped ones.
  int64_t num_updates() const;
  uint64_t num_skipped() const;
  /// XXH64 over master, momentum and variance of every parameter in call order.
  uint64_t state_hash() const;
  /// The fp32 master of a parameter, by name; ConfigError where there is none of that name.
  std::vector<float> read_parameter(std::string_view name) const;
  void write_parameter(std::string_view name, std::span<const float> values);
  /// Calls visit(name, shape, values) for every parameter in call order, one at a time in memory.
  using VisitParameter =
      std::function<void(std::string_view name, const Shape& shape, std::span<const float> values)>;
  void visit_parameters(const VisitParameter& visit) const;
  /// Elements [first, first + values.size()) of one, by its id in Model::parameters(): for what
  /// passes in pieces. REQUIRES: they exist.
  void read_parameter(ParameterId id, uint64_t first, std::span<float> values) const;
  void write_parameter(ParameterId id, uint64_t first, std::span<const float> values);

  /// The state as it is now, to be written by another thread beside the next steps; of what lives
  /// at home the device holds nothing by then, so the next step loads it anew. Until the loan ends,
  /// a step may wait for it, and so may what looks at weights or writes them. layout() names the
  /// parameters, state_planes() the planes.
  StateReader lock_state();
  const Layout& layout() const;
  /// Goes on from such a state: `read` fills what comes next of one plane of a parameter after the
  /// other, in call order; it must not look at this trainer. After a throw, see step().
  using ReadPlane = std::function<void(ParameterId, size_t plane, std::span<std::byte> into)>;
  void restore(const OptimizerCounters& counters, const ReadPlane& read);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb

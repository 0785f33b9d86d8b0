// Trains a model whose state lives at home, or partly on the device, which holds of it what its
// budget allows.
//
//   auto device = create_device({.memory_bytes = 256 << 20});
//   Preparation prepared = prepare(model, options, {.device_memory = 256 << 20});
//   Trainer trainer(model, *device, prepared);
//   StepResult r = trainer.step({&micro_batch, 1}, learning_rate);
//
// prepare() plans and takes nothing, the Trainer takes every byte. prepare() is pure: it runs the
// model on the simulated device, lays out the parameters and plans training and evaluation;
// PlanError says what would fit. After the first two steps, a step allocates nothing. One thread
// calls a Trainer. The results of a step depend on model, data, seed and options only, never on
// budgets, chunk size, recomputation or threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chunk/layout.h"
#include "chunk/ledger.h"
#include "cpu_adam/adamw.h"
#include "device/device.h"
#include "scheduler/model.h"
#include "scheduler/plan.h"
#include "scheduler/simulate.h"
#include "scheduler/state_loan.h"

namespace ebb {

/// Whose inner activations are forgotten after their forward and made again before their backward.
/// Any other value N: of N blocks that follow each other at once, which keeps fewer values between
/// blocks and more inside.
enum class Recompute : uint32_t {
  None = 0,
  Block = 1,
  Sqrt = UINT32_MAX - 1,  ///< of the root of the number of blocks at once
  Auto = UINT32_MAX,
};

/// Where activations wait for their backward. The same bits either way.
enum class ActivationPlacement : uint8_t {
  Device,
  Offload,  ///< at home, as far as the blocks are needed for what is used earlier
  Auto,
};

/// How a step's micro-batches pass the model (scheduler/micro_batches.h). The same bits either way.
enum class MicroBatchOrder : uint8_t {
  Horizontal,  ///< one after the other
  Vertical,    ///< all of them block by block: weights move once a pass
  Auto,
};

/// When a step's updates are made. The same bits either way.
enum class UpdateOrder : uint8_t {
  Wait,     ///< before the step ends
  Overlap,  ///< what need not be waited for, beside the next step's forward
  /// Where updates wait for the norm, some during the backward as well, in the hope that it will
  /// not clip; what was wrong is undone and made again beside the next step's forward. Otherwise as
  /// Overlap.
  Speculate,
  Auto,
};

/// What is `Auto` is the planner's choice (scheduler/choose.h).
struct TrainerOptions {
  /// Of weights on the device and matrix inputs. fp16 has dynamic loss scaling
  /// (scheduler/loss_scale.h), and its updates wait for the norm.
  DType dtype = DType::BF16;
  std::optional<DType> gradient_dtype = {};  ///< as dtype where not given
  size_t chunk_bytes = size_t{64} << 20;
  Recompute recompute = Recompute::Auto;
  /// Of the blocks, only the first so many are recomputed: what they make would be kept the
  /// longest. nullopt: all of them, or the planner's choice where `recompute` is.
  std::optional<uint32_t> recomputed_blocks = {};
  /// Of each so many blocks in a row: where values leave, blocks that are recomputed leave time to
  /// those between them. nullopt: of all, or the planner's choice where the number is.
  std::optional<uint32_t> recomputed_of = {};
  ActivationPlacement activations = ActivationPlacement::Auto;
  MicroBatchOrder micro_batch_order = MicroBatchOrder::Auto;
  uint32_t gradient_accumulation = 1;  ///< micro-batches a step
  uint32_t evaluation_batches = 0;     ///< micro-batches an evaluation; 0 = no evaluation
  UpdateOrder update = UpdateOrder::Auto;
  /// Of the updates of a step without clipping, how many (0 to 1) overlap with the next step;
  /// nullopt: the planner's choice. The same bits either way, and so the next.
  std::optional<double> carried_share = {};
  /// Chunks of gradients that may wait at home for the others; nullopt: the planner's choice.
  std::optional<uint32_t> gradient_slots = {};
  /// Where updates speculate: on so many chunks, as far as that is possible and there is memory at
  /// home for their logs; nullopt: the planner's choice.
  std::optional<uint32_t> speculated_chunks = {};
  /// Also on those whose turn comes when the norm can be known, which is slower: for tests, in
  /// which time must not decide.
  bool speculates_late = false;
  /// Chunks of weights to hold on the device from step to step, as far as that is possible;
  /// nullopt: the planner's choice. The same bits either way.
  std::optional<uint32_t> held_chunks = {};
  /// Chunks that live on the device and are updated there, as far as there is room; nullopt:
  /// the planner's choice.
  std::optional<uint32_t> device_updates = {};
  AdamW adam = {};
  float max_grad_norm = 1;                          ///< 0 = no clipping
  uint32_t initial_loss_scale = kInitialLossScale;  ///< of fp16: a power of two up to 2^24
  /// In a row, for a norm that is not a number, before it is an error; of fp16 only those at a loss
  /// scale of 1 count, as the others halve it.
  uint32_t max_skipped_steps = 3;
  /// At the places that the model has for it; below 1, and off in evaluation. What is dropped
  /// follows from seed, step, sample and place (device/dropout.h).
  float dropout = 0;
  uint64_t seed = 1;
  /// From the seed; otherwise they are zeros until somebody writes them.
  bool random_weights = true;

  bool operator==(const TrainerOptions&) const = default;
};

/// Does an update wait for the norm of all gradients? To be clipped, or as fp16 may have overflowed
/// in any of them.
inline bool updates_after_norm(const TrainerOptions& options) {
  return options.max_grad_norm > 0 || options.dtype == DType::F16;
}

/// Budgets in bytes; nullopt: what the model needs (device), not checked (host).
struct Budgets {
  std::optional<size_t> device_memory = {};
  std::optional<size_t> host_memory = {};
  /// Both together, where the device's memory is the host's; nullopt: not checked.
  std::optional<size_t> total_memory = {};
  /// Threads of the kernels that will run, which size their workspace by it; 0: one per usable
  /// core.
  int num_threads = 0;
  /// The kind of device that will run them, which decides their workspace, too.
  DeviceKind device = DeviceKind::Host;
  /// That device's (DeviceInfo::attention); nullopt: whichever takes more workspace.
  std::optional<AttentionKernels> attention = {};
  /// DeviceOptions::pinned_bytes: a CUDA device's copies pass rings where that is too little.
  size_t pinned_memory = SIZE_MAX;
};

/// A way to lay a step out in time, and what it would take: a row of the planner's table.
struct Candidate {
  MicroBatchOrder order = MicroBatchOrder::Horizontal;
  Recompute recompute = Recompute::None;
  ActivationPlacement activations = ActivationPlacement::Device;
  UpdateOrder update = UpdateOrder::Overlap;
  // Tried for those near the fastest alone.
  uint32_t recomputed_blocks = 0;   ///< where blocks are recomputed: how many of the model's
  uint32_t recomputed_of = 0;       ///< of each so many in a row; 0: of all, and then the first
  uint32_t num_held = 0;            ///< chunks of weights
  uint32_t num_device_updates = 0;  ///< chunks; of those held
  uint32_t num_speculated = 0;      ///< chunks
  std::string why_not = {};  ///< empty: it fits the budgets. Otherwise what follows is not known
  double seconds = 0;        ///< predicted, of a step; 0 on a machine without rates
  Bound bound = {};
  double flops = 0;
  size_t moved_bytes = 0;
  size_t device_bytes = 0;  ///< that it would use, and so the next
  size_t host_bytes = 0;
  size_t smallest_device_bytes = 0;  ///< the smallest device budget in which it fits; always known
};

/// Everything decided before step 0.
struct Preparation {
  TrainerOptions options;             ///< nothing in them is `Auto`, or `Sqrt`, any more
  std::vector<Candidate> candidates;  ///< what was `Auto` in all its values, the simpler first
  size_t chosen = 0;                  ///< of them
  std::shared_ptr<const Layout> layout;
  Trace trace, evaluation_trace;
  std::shared_ptr<const Program> program;  ///< of the trace; none once a plan was taken
  Plan plan, evaluation_plan;
  Plan settle_plan;  ///< blocks for what lives on the device, before the first step
  Plan drain_plan;   ///< what a step leaves to the next, should none follow at once
  Plan fill_plan;    ///< what a step expects of the one before, should there be none
  Ledger ledger;     ///< every byte, by class and tier
  uint32_t num_blocks = 0;
  size_t block_memory_bytes = 0;  ///< of the budget: for blocks, and for state that lives there
  uint32_t smallest_blocks = 0;
  uint32_t resident_blocks = 0;
  size_t smallest_device_bytes = 0;  ///< the smallest device budget that works, for any candidate
  size_t resident_device_bytes = 0;  ///< beyond which only chunks that live there take more
  int num_threads = 1;               ///< of the device's kernels: the device may have no more
  DeviceKind device = DeviceKind::Host;            ///< whose kernels' workspace was counted
  std::optional<AttentionKernels> attention = {};  ///< counted, too
  size_t pinned_memory = SIZE_MAX;                 ///< of the budgets
  double flops = 0;                                ///< of a step, recomputation included
  uint32_t num_model_blocks = 0;                   ///< that the model's forward is made of
};

/// `machine` is what the choice goes by; without rates, bytes moved and arithmetic decide.
Preparation prepare(const Model& model, const TrainerOptions& options, const Budgets& budgets,
                    const Machine& machine = {});

/// Host memory for the inputs of one micro-batch, in the order of Model::inputs(); `num_targets`
/// counts the losses that are not ignored.
struct MicroBatch {
  std::vector<Tensor> inputs;
  uint64_t num_targets = 0;
};

/// In a rehearsal (DeviceInfo::pretended) losses and norms are not numbers: nothing computed them.
/// Everything else is real, the update included: it takes what the device sent for gradients.
struct StepResult {
  double loss = 0;          ///< mean over all targets of the step
  double grad_norm = 0;     ///< before clipping, of gradients without the loss scale
  bool skipped = false;     ///< the norm was not a number; weights stayed as they were
  uint32_t loss_scale = 1;  ///< fp16: that this step was made with
  uint64_t num_targets = 0;
  double step_s = 0;
  double compute_s = 0;            ///< running kernels
  double stall_s = 0;              ///< compute idle before its last operation ended
  double update_s = 0;             ///< the optimizer at work
  double overlap_s = 0;            ///< both at once: on the host they then share the cores
  double copying_processor_s = 0;  ///< host: what the copies took of the cores
  size_t loaded_bytes = 0;
  size_t stored_bytes = 0;
  uint32_t speculated_chunks = 0;  ///< updated before the norm was known
  uint32_t undone_chunks = 0;      ///< of those: clipping did bite, or the norm was not a number
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
  /// parameters, home_planes() the planes.
  StateLoan lend_state();
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

// Trains a model that can be larger than the device's memory. The training state is in host memory,
// or partly on the device if the device budget allows it.
//
//   auto device = create_device({.memory_bytes = 256 << 20});
//   Preparation prepared = prepare(model, options, {.device_memory = 256 << 20});
//   Trainer trainer(model, *device, prepared);
//   StepResult r = trainer.step({&micro_batch, 1}, learning_rate);
//
// The constructor allocates all memory. After the first two steps, a step allocates nothing. The
// results of a step depend on the model, the data, the seed and the options of the arithmetic only,
// not on budgets, chunk size, recomputation or the number of threads. With delayed updates they
// also depend on when the state was read (TrainerOptions::delayed_updates).
//
// Thread-safety: one thread calls a Trainer. Sizes are bytes, times are seconds. Broken contracts
// are LogicErrors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "chunk/layout.h"
#include "comm/ranks.h"
#include "device/device.h"
#include "scheduler/run/micro_batch.h"
#include "scheduler/run/state_reader.h"
#include "scheduler/search/preparation.h"

namespace ebb {

/// The results of a step. In an emulated step (DeviceInfo::emulate_compute) the loss and the norm
/// are NaN, because no kernel computed them. All other members are measured as usual. The update
/// runs too, on the bytes in the gradient buffers.
struct StepResult {
  double loss = 0;           ///< mean over all targets of the step
  double grad_norm = 0;      ///< before clipping, without the factor of the loss scale
  bool skipped = false;      ///< the norm was NaN or infinite; the step changed no weight
  uint32_t loss_scale = 1;   ///< the loss scale of this step in fp16; 1 in other types
  uint64_t num_targets = 0;  ///< of all ranks
  double step_s = 0;         ///< with the warm-up plan, if the step ran it
  double compute_s = 0;      ///< kernels are running
  double stall_s = 0;        ///< the compute stream is idle before its last operation ends
  double update_s = 0;       ///< the update thread works, or waits for a GPU that adds or updates
  double overlap_s = 0;      ///< both are true; a host device shares its cores
  size_t loaded_bytes = 0;
  size_t stored_bytes = 0;
  uint32_t speculated_chunks = 0;   ///< updated before the norm was known
  uint32_t rolled_back_chunks = 0;  ///< of these, rolled back by clipping or a skipped step
};

/// For Budgets::place. `ranks`: null for one rank.
RankPlace place_of(const Ranks* ranks);
/// For Budgets::peer_access: are the devices GPUs, of which those of a machine can read each
/// other's memory? No if each machine has one rank. Collective; all ranks get the same answer.
/// `device`: that of this rank. Throws DeviceError, RankLost.
bool have_peer_access(Ranks& ranks, const DeviceOptions& device);

/// Runs training steps and evaluations. Deferred updates of a step run during the forward of the
/// next step, delayed updates (TrainerOptions::delayed_updates) during the whole next step.
/// evaluate(), state_hash(), visit_parameters(), read_parameter(), write_parameter(), lock_state()
/// and restore() run the flush plan first: it makes the deferred updates and drops resident
/// weights, except those of Tier::Device. The next step loads these weights again.
class Trainer {
 public:
  /// `model`, `device` and `prepared` must outlive the trainer. The weights get their initial
  /// values from the seed, or zeros without options.random_weights. Throws OutOfMemory; ConfigError
  /// if the plan was made for a device with fewer threads or other kernels; LogicError, on all
  /// ranks, if their plans do not fit together.
  ///
  /// With several ranks, each has a trainer, and these functions are collective, so all ranks call
  /// them, in the same order: the constructor, step(), evaluate(), flush(), write_parameter(),
  /// restore(). A function that reads the state is collective, too, unless flush() was called after
  /// the last step; then the other ranks must wait until it has returned. If sums of groups or
  /// state are on the devices, the destructor is collective, too.
  /// `ranks` must outlive the trainer, and is used by no other trainer. REQUIRES: its rank and size
  /// are those of Budgets::place. If a plan throws, the trainer calls ranks->fail(); for other
  /// errors the caller does.
  Trainer(const Model& model, Device& device, const Preparation& prepared, Ranks* ranks = nullptr);
  ~Trainer();

  /// Runs one step. REQUIRES: as many micro-batches as options.gradient_accumulation; with several
  /// ranks, the part of them that Preparation::share names. The results are the same on all ranks,
  /// but for times, bytes and chunks. Throws NumericError if there are no targets, if a gradient is
  /// NaN or infinite and the step cannot be skipped, or if options.max_skipped_steps steps were
  /// skipped in a row; RankLost if another rank failed. If running the plan throws, no further step
  /// or evaluation can run, but the state can be read: it is the state before the step. In these
  /// cases the state is lost, and reading it throws a LogicError:
  /// - updates do not wait for the norm, there are device updates, or there are several ranks;
  /// - an update of this step, other than a speculative one, has begun;
  /// - some deferred or delayed updates of the step before were not made;
  /// - the warm-up plan or the flush plan threw.
  StepResult step(std::span<const MicroBatch> micro_batches, double learning_rate);
  /// Returns the mean loss, without computing gradients; NaN with emulated compute. REQUIRES:
  /// options.evaluation_batches micro-batches, at least one; with several ranks, those of
  /// Preparation::evaluation_batches, which may be none. Throws NumericError if there are no
  /// targets. If running the plan throws, the state can still be read: it is the state after the
  /// last step. But it is lost if there are device updates, or if the flush plan threw.
  double evaluate(std::span<const MicroBatch> micro_batches);

  /// Runs the flush plan now, unless no step has run since the last time.
  void flush();

  /// The times at which the operations of the plan ran in the last step, from the begin of the
  /// plan; a warm-up plan is not included. Valid until the next call of a function that runs a
  /// plan.
  std::span<const OpTime> last_step_times() const;

  /// The number of updates so far (Adam's t): all steps but the skipped ones.
  int64_t num_updates() const;
  /// The number of skipped steps so far.
  uint64_t num_skipped() const;
  /// The XXH64 of the master, momentum and variance of every parameter in call order.
  uint64_t state_hash();
  /// Read and write the fp32 master of a parameter. The moments stay as they are. Throw ConfigError
  /// if no parameter has the name.
  std::vector<float> read_parameter(std::string_view name);
  void write_parameter(std::string_view name, std::span<const float> values);
  /// Calls visit(name, shape, values) with the master of every parameter in call order. Only one
  /// parameter at a time is in memory.
  using VisitParameter =
      std::function<void(std::string_view name, const Shape& shape, std::span<const float> values)>;
  void visit_parameters(const VisitParameter& visit);
  /// Read and write elements [first, first + values.size()) of the fp32 master of the parameter
  /// with this id in Model::parameters(). REQUIRES: the elements exist.
  void read_parameter(ParameterId id, uint64_t first, std::span<float> values);
  void write_parameter(ParameterId id, uint64_t first, std::span<const float> values);

  /// Locks the state as it is now, so that another thread can read it during the next steps. Until
  /// the reader is destroyed, steps and functions that write or flush the state may wait for it. So
  /// the thread that must destroy the reader must not call them. layout() names the parameters,
  /// state_planes() the planes. Throws LogicError if the state is locked. With several
  /// ranks, a reader can read the chunks of all, but it holds back only the updates of its own
  /// rank. So each rank should read its own chunks (owned_ranges.h); while a reader reads chunks of
  /// another rank, that rank must not begin a step.
  StateReader lock_state();
  const Layout& layout() const;
  /// Replaces the state, for example by that of a checkpoint. `read` must fill `into` with the next
  /// bytes of the plane. For each parameter in call order, and plane after plane, it is called once
  /// or several times until the plane is complete. It must not use this trainer. If it throws, the
  /// trainer must not be used any more.
  using ReadPlane = std::function<void(ParameterId, size_t plane, std::span<std::byte> into)>;
  void restore(const OptimizerCounters& counters, const ReadPlane& read);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb

// The options of a training run, and the memory that the run may use. Plain values.
//
// These options change results: the types, adam, clipping, dropout, the seed, random_weights, the
// loss scale, the numbers of micro-batches and groups, the type of the sums of groups, and delayed
// updates. With all others, results have the same bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "autograd/tape.h"
#include "device/adamw_options.h"
#include "device/device.h"
#include "device/dtype.h"
#include "device/loss_scale.h"
#include "scheduler/plan/groups.h"
#include "scheduler/plan/schedule.h"

namespace ebb {

struct TrainerOptions {
  /// The type of weights on the device and of matrix inputs. fp16 has dynamic loss scaling
  /// (device/loss_scale.h), and its updates wait for the norm.
  DType dtype = DType::BF16;
  /// Not narrower than dtype; nullopt: the same.
  std::optional<DType> gradient_dtype = {};
  /// Layout and Device::create_blocks() say which sizes are allowed.
  size_t chunk_bytes = size_t{64} << 20;
  uint32_t gradient_accumulation = 1;  ///< micro-batches of a step, of all ranks together
  uint32_t evaluation_batches = 0;     ///< micro-batches of an evaluation; 0 = no evaluation
  /// How many groups the micro-batches of a step form (scheduler/plan/groups.h); nullopt: as many
  /// as micro-batches. At least as many as ranks.
  std::optional<uint32_t> groups = {};
  /// The type of the stored gradient sums of several groups: F32, or BF16, to which each of them is
  /// rounded before they are added (scheduler/plan/groups.h).
  DType group_dtype = DType::F32;
  /// The settings that the planner must not choose.
  ScheduleRequest schedule = {};
  /// The update of a step runs during the whole next step, which still computes with the weights
  /// before it. So a gradient is that of weights which are one update older, and no load waits for
  /// an update. (But the store of a gradient waits for the update that reads its buffer.) All
  /// updates are made, in the order of their steps; only the gradients are others. A function of
  /// the trainer that flushes makes the last update early. The next step then computes with the
  /// newest weights, so such a call changes the results of later steps. Host memory has two copies
  /// of the weights. Updates wait for the norm, and no chunk is updated on a device.
  bool delayed_updates = false;
  /// Also make those speculative updates that start when the norm may be known already. This is
  /// slower. It is for tests, whose results must not depend on time.
  bool speculates_late = false;
  AdamW adam = {};
  float max_grad_norm = 1;                          ///< 0 = no clipping
  uint32_t initial_loss_scale = kInitialLossScale;  ///< for fp16: a power of two up to 2^24
  /// NumericError when so many steps in a row were skipped because their norm is not finite. With
  /// fp16, only steps at a loss scale of 1 count, as the others halve the scale.
  uint32_t max_skipped_steps = 3;
  /// The probability, below 1, with which dropout sets an element to 0; evaluations have no
  /// dropout. The elements follow from the seed, the step, the sample and the position
  /// (device/dropout.h).
  float dropout = 0;
  uint64_t seed = 1;
  /// Initial weights: from the seed, or zeros.
  bool random_weights = true;

  bool operator==(const TrainerOptions&) const = default;
};

/// Do updates wait for the norm of all gradients? With clipping they do, and with fp16, because any
/// gradient may have overflowed. Delayed updates run after the step, so the norm is known.
inline bool updates_after_norm(const TrainerOptions& options) {
  return options.max_grad_norm > 0 || options.dtype == DType::F16 || options.delayed_updates;
}

/// When updates run: "delayed", or the name of the schedule's order.
inline std::string_view name_of_updates(const TrainerOptions& options, const Schedule& schedule) {
  return options.delayed_updates ? "delayed" : name_of(schedule.update);
}

/// How a step is divided, seen from one rank. The schedule decides about sums on devices.
inline Division division_of(const TrainerOptions& options, const RankPlace& place) {
  const uint32_t num_groups = options.groups.value_or(options.gradient_accumulation);
  Division division{.place = place,
                    .num_micro_batches = options.gradient_accumulation,
                    .num_groups = num_groups,
                    .sum_type = num_groups > 1 ? options.group_dtype : DType::F32};
  division.chains_sums =
      place.num_machines > 1 && options.schedule.chains_sums.value_or(is_chain_shorter(division));
  return division;
}

/// Budgets of one rank in bytes, the device for which memory is counted, and which rank it is.
struct Budgets {
  /// nullopt: enough that no chunk is evicted before its last use; one rank takes less if
  /// total_memory is too small for that (scheduler/search/choose.h)
  std::optional<size_t> device_memory = {};
  std::optional<size_t> host_memory = {};  ///< nullopt: not checked
  /// Device and host memory together, for the host backend; nullopt: not checked.
  std::optional<size_t> total_memory = {};
  DeviceProfile device = {};
  RankPlace place = {};
  /// Can the device of each rank read the memory of the devices of all others of its machine? Then
  /// the planner also tries to keep sums of groups in device memory (Division::sums_on_devices),
  /// and may split loads (Division::splits_loads). The same on all ranks. False if each machine has
  /// one rank.
  bool peer_access = false;
};

/// Throws ConfigError if kernels of `device` may need more workspace than those of the device
/// `planned`, for which a plan was made.
void check_device(const DeviceProfile& planned, const DeviceProfile& device);

/// The options of the tape in step `step` of a run with this schedule, whose recomputation is
/// `layers`, which must outlive the result. Dropout depends on the step.
TapeOptions tape_options(const TrainerOptions& options, const Schedule& schedule,
                         std::span<const LayerRecompute> layers, bool training, uint32_t step = 0);
/// How many of `count` micro-batches run through a layer before the next layer begins.
uint32_t micro_batches_together(const Schedule& schedule, uint32_t count);

}  // namespace ebb

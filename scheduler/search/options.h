// The settings of a training run, and the memory that the run may use. Plain values.
//
// Only the settings of the arithmetic (dtype, adam, clipping, dropout, seed) change results. With
// all others, results have the same bits. The planner chooses a setting that is `Auto` or nullopt
// (scheduler/search/choose.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "autograd/tape.h"
#include "device/adamw_options.h"
#include "device/device.h"
#include "device/dtype.h"
#include "device/loss_scale.h"

namespace ebb {

/// Which layers are recomputed: their inner activations are freed after their forward and computed
/// again before their backward. Any other value N: N consecutive layers are recomputed together.
/// This keeps fewer activations between layers, but more of them exist during the backward.
enum class Recompute : uint32_t {
  None = 0,
  Layer = 1,              ///< each layer on its own
  Sqrt = UINT32_MAX - 1,  ///< N is the square root of the number of layers
  Auto = UINT32_MAX,
};

/// Where idle activations are between their forward and their backward.
enum class ActivationPlacement : uint8_t {
  Device,
  Offload,  ///< in host memory, if other chunks need their blocks earlier
  Auto,
};

/// The order of the micro-batches of a step (autograd/micro_batches.h).
enum class MicroBatchOrder : uint8_t {
  Horizontal,  ///< one after the other through the whole model
  Vertical,    ///< all of them layer by layer: a forward or a backward loads a weight once
  Auto,
};

/// When the updates of a step run.
enum class UpdateOrder : uint8_t {
  Wait,     ///< before the step ends
  Overlap,  ///< some are deferred: they run during the forward of the next step
  /// As Overlap. If updates wait for the norm, some chunks have a speculative update during the
  /// backward. An update that clipping changes is rolled back, and is made again during the forward
  /// of the next step.
  Speculate,
  Auto,
};

/// The planner chooses each setting that is `Auto` or nullopt, unless its comment says otherwise.
struct TrainerOptions {
  /// The type of weights on the device and of matrix inputs. fp16 has dynamic loss scaling
  /// (device/loss_scale.h), and its updates wait for the norm.
  DType dtype = DType::BF16;
  std::optional<DType> gradient_dtype = {};  ///< nullopt: the same as dtype
  size_t chunk_bytes = size_t{64} << 20;
  Recompute recompute = Recompute::Auto;
  /// Only this many first layers are recomputed, because the activations of early layers would be
  /// kept the longest. nullopt: all layers, or the planner's choice if `recompute` is Auto.
  std::optional<uint32_t> recomputed_layers = {};
  /// `recomputed_layers` counts in each group of this many consecutive layers. With offloading, the
  /// link has time to copy the activations of the other layers while these are recomputed. nullopt:
  /// one group of all layers, or the planner's choice if the planner chooses `recomputed_layers`.
  std::optional<uint32_t> recomputed_of = {};
  ActivationPlacement activations = ActivationPlacement::Auto;
  MicroBatchOrder micro_batch_order = MicroBatchOrder::Auto;
  uint32_t gradient_accumulation = 1;  ///< micro-batches of a step
  uint32_t evaluation_batches = 0;     ///< micro-batches of an evaluation; 0 = no evaluation
  UpdateOrder update = UpdateOrder::Auto;
  /// Which share (0 to 1) of the updates of a step without clipping is deferred.
  std::optional<double> deferred_share = {};
  /// How many finished gradients may wait in host memory for an update of this step.
  std::optional<uint32_t> gradient_buffers = {};
  /// How many chunks have a speculative update. It is fewer if not so many can have one, or if host
  /// memory is too small for their undo logs.
  std::optional<uint32_t> speculated_chunks = {};
  /// Also make those speculative updates that start when the norm may be known already. This is
  /// slower. It is for tests, whose results must not depend on time.
  bool speculates_late = false;
  /// How many chunks of weights are resident, if so many can be.
  std::optional<uint32_t> resident_chunks = {};
  /// How many chunks the device updates, if it has memory for so many.
  std::optional<uint32_t> device_updates = {};
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
/// gradient may have overflowed.
inline bool updates_after_norm(const TrainerOptions& options) {
  return options.max_grad_norm > 0 || options.dtype == DType::F16;
}

/// Budgets in bytes, and the device for which memory is counted.
struct Budgets {
  std::optional<size_t> device_memory = {};  ///< nullopt: as much as the model can use
  std::optional<size_t> host_memory = {};    ///< nullopt: not checked
  /// Device and host memory together, for the host backend; nullopt: not checked.
  std::optional<size_t> total_memory = {};
  /// Threads of the kernels, on which their workspace depends; 0: one thread for each usable core.
  int num_threads = 0;
  /// The device that runs the kernels. Their workspace depends on it.
  DeviceKind device = DeviceKind::Host;
  /// DeviceInfo::attention of this device; nullopt: the kernels with the larger workspace.
  std::optional<AttentionKernels> attention = {};
  /// DeviceOptions::pinned_bytes. If it is too small to pin the home, copies to and from a CUDA
  /// device pass through staging buffers.
  size_t pinned_memory = SIZE_MAX;
};

/// The options of the tape in step `step` of a run. REQUIRES: no option is `Auto`.
TapeOptions tape_options(const TrainerOptions& options, bool training, uint32_t step = 0);
/// How many of `count` micro-batches run through a layer before the next layer begins.
uint32_t micro_batches_together(const TrainerOptions& options, uint32_t count);

/// "none", "layer", "3 layers", "sqrt", "auto"; "device", ...; "horizontal", ...; "overlap", ...
std::string name_of(Recompute recompute);
std::string_view name_of(ActivationPlacement placement);
std::string_view name_of(MicroBatchOrder order);
std::string_view name_of(UpdateOrder update);

}  // namespace ebb

// What a user may say about a training run, and the memory that it may use. Plain values.
//
// Every setting but those of the arithmetic (dtype, adam, clipping, dropout, seed) leaves all
// results with the same bits. A setting that is `Auto` or nullopt is left to the planner
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

/// Whose inner activations are forgotten after their forward and made again before their backward.
/// Any other value N: of N blocks that follow each other at once, which keeps fewer values between
/// blocks and more inside.
enum class Recompute : uint32_t {
  None = 0,
  Layer = 1,
  Sqrt = UINT32_MAX - 1,  ///< of the root of the number of blocks at once
  Auto = UINT32_MAX,
};

/// Where activations wait for their backward. The same bits either way.
enum class ActivationPlacement : uint8_t {
  Device,
  Offload,  ///< at home, as far as the blocks are needed for what is used earlier
  Auto,
};

/// How a step's micro-batches pass the model (autograd/micro_batches.h). The same bits either way.
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

/// What is `Auto` is the planner's choice (scheduler/search/choose.h).
struct TrainerOptions {
  /// Of weights on the device and matrix inputs. fp16 has dynamic loss scaling
  /// (device/loss_scale.h), and its updates wait for the norm.
  DType dtype = DType::BF16;
  std::optional<DType> gradient_dtype = {};  ///< as dtype where not given
  size_t chunk_bytes = size_t{64} << 20;
  Recompute recompute = Recompute::Auto;
  /// Of the blocks, only the first so many are recomputed: what they make would be kept the
  /// longest. nullopt: all of them, or the planner's choice where `recompute` is.
  std::optional<uint32_t> recomputed_layers = {};
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
  std::optional<double> deferred_share = {};
  /// Chunks of gradients that may wait at home for the others; nullopt: the planner's choice.
  std::optional<uint32_t> gradient_buffers = {};
  /// Where updates speculate: on so many chunks, as far as that is possible and there is memory at
  /// home for their logs; nullopt: the planner's choice.
  std::optional<uint32_t> speculated_chunks = {};
  /// Also on those whose turn comes when the norm can be known, which is slower: for tests, in
  /// which time must not decide.
  bool speculates_late = false;
  /// Chunks of weights to hold on the device from step to step, as far as that is possible;
  /// nullopt: the planner's choice. The same bits either way.
  std::optional<uint32_t> resident_chunks = {};
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

/// What the options say to the tape, in step `step` of a run. REQUIRES: nothing in them is `Auto`.
TapeOptions tape_options(const TrainerOptions& options, bool training, uint32_t step = 0);

/// "none", "block", "3 blocks"; "device", ...; "horizontal", ...; "overlap", ...
std::string name_of(Recompute recompute);
std::string_view name_of(ActivationPlacement placement);
std::string_view name_of(MicroBatchOrder order);
std::string_view name_of(UpdateOrder update);

}  // namespace ebb

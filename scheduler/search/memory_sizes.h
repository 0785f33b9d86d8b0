// Sizes of the memory of a training run that is not in blocks. The ledger counts it before the run
// and the run allocates it, both with these functions. Sizes are bytes. Pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "chunk/home.h"
#include "chunk/ledger.h"
#include "device/kernel_arguments.h"
#include "scheduler/search/preparation.h"

namespace ebb {

/// What a plan needs in host memory, as numbers of buffers and chunks, for the constructor of Home.
HomeOptions home_options(const Plan& plan);

/// Device memory for one sum of squares of each piece of the parameter space.
size_t partial_norm_bytes(const Layout& layout);

/// Device memory for the planes of `num_chunks` chunks that the device updates. The weights are not
/// counted, because they are in blocks.
size_t device_state_bytes(const Layout& layout, uint32_t num_chunks);
/// Device memory for all planes and the finished gradients of `num_chunks` chunks on the device of
/// their owner.
size_t owner_state_bytes(const Layout& layout, uint32_t num_chunks);
/// The bounce buffer has room for all planes of this number of elements of the parameter space.
uint64_t bounce_buffer_elements(const Layout& layout);
/// Pinned memory for the bounce buffer.
size_t bounce_buffer_bytes(const Layout& layout);
/// The largest number of different pairs of decay factor and learning rate factor. All parameters
/// that are trained count. With more pairs, DeviceState::expect() throws LogicError.
inline constexpr size_t kMaxFactors = 64;
/// The coefficients of these pairs. A GPU's update has a copy of them in the workspace.
inline constexpr size_t kUpdateWorkspaceBytes = kMaxFactors * sizeof(AdamWCoefficients);
/// Pinned memory for them: one set for updates before the norm, one for updates after it.
inline constexpr size_t kCoefficientBytes = 2 * kUpdateWorkspaceBytes;

/// Host memory for the undo log of one chunk: a byte of corrections for each element, and memory
/// for one outlier per twelve elements.
size_t undo_log_bytes(const Layout& layout);

/// The elements of a group on another machine that are copied at once when groups are added. They
/// are enough to hide the delay of a request, and few enough to stay in caches.
inline constexpr uint64_t kFarPortionElements = uint64_t{1} << 18;
/// How many such portions are copied at once: one for each group on another machine and each use of
/// the parameter with the most uses.
uint64_t num_far_portions(const Layout& layout, const Division& division);

/// The elements of a chunk that a GPU adds at once, of all groups. They are few enough for little
/// memory, and enough for kernels to run at full speed.
inline constexpr uint64_t kAddedElements = uint64_t{1} << 22;
inline uint64_t elements_added_at_once(const Layout& layout) {
  return std::min(kAddedElements, layout.chunk_elements());
}
/// The number of partial norms of so many elements.
uint64_t pieces_of(uint64_t count);
/// What a GPU needs to add them: two fp32 sums of each, the gradient, and its partial norms; and a
/// copy of the coefficients of updates. The host device needs nothing.
size_t device_adder_bytes(const Layout& layout, DeviceKind kind);
/// Pinned memory for the gradient, or for a part of a running sum, and for partial norms; and the
/// same, or 0 if no GPU adds.
size_t device_adder_pinned_bytes(const Layout& layout);
size_t adder_pinned_bytes(const Preparation& prepared);

/// Device memory for all `num_slots` sum slots together (Division::sums_on_devices), rounded up to
/// whole chunks, which SharedDeviceMemory needs on a GPU.
size_t sum_slot_bytes(const Layout& layout, const Division& division, uint32_t num_slots);
/// Device memory for the part slots of split loads (scheduler/plan/split_loads.h), rounded up in
/// the same way. 0 if no loads are split.
size_t memory_of_part_slots(const Layout& layout, const Division& division);
/// Device memory for the sums of one chunk, rounded, on their way to a slot in host memory. 0 if
/// nothing is rounded, or the slots are on the device.
size_t rounded_sum_bytes(const Layout& layout, const Division& division);

/// The classes of the ledger whose sizes the run reads from it.
inline constexpr std::string_view kInputs = "inputs", kWorkspace = "workspace", kLosses = "losses";
/// The class of sum slots, and of what a device needs to round and to add sums.
inline constexpr std::string_view kSumsOfGroups = "sums of groups";
/// The class of the part slots of split loads.
inline constexpr std::string_view kPartSlotClass = "part slots";
/// The class of what a GPU's driver and libraries take in host memory (device/driver_memory.h). The
/// run does not allocate it.
inline constexpr std::string_view kDriver = "driver";

/// For how many micro-batches of a step or of an evaluation there is memory. It is the same on all
/// ranks with equal shares of a step.
uint32_t most_micro_batches(const Preparation& prepared);

/// The device memory that does not depend on the plan: the inputs of a step or of an evaluation,
/// the larger of both, each padded as in the arena; the workspace of kernels, also of updates;
/// partial norms; the losses. `trace` is of a step; `evaluation` is of an evaluation, or empty.
/// `num_micro_batches`: most_micro_batches().
Ledger fixed_memory(const Model& model, uint32_t num_micro_batches, const Layout& layout,
                    const Trace& trace, const Trace& evaluation);

}  // namespace ebb

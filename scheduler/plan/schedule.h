// The schedule of a step: everything that the planner may decide. No setting changes a bit of a
// result.
//
// A ScheduleRequest says which settings the caller fixes. The planner chooses each setting that is
// nullopt (scheduler/search/choose.h). A Schedule is the decision: it has a value for each setting.
//
//   ScheduleRequest request{.recompute = kRecomputeEach, .update = UpdateOrder::Wait};
//
// Both types have the same fields, which are declared once. Plain values.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "autograd/recompute.h"

namespace ebb {

/// The order of the micro-batches of a step (autograd/micro_batches.h).
enum class MicroBatchOrder : uint8_t {
  Horizontal,  ///< one after the other through the whole model
  /// All of them layer by layer: a forward or a backward loads a weight once, if the weights of a
  /// layer fit on the device.
  Vertical,
};

inline const Recompute kRecomputeNone;
inline const Recompute kRecomputeEach{.groups = {kWholeLayer}};  ///< each layer on its own

/// So many consecutive layers together.
inline Recompute recompute_together(uint32_t num_layers) {
  return {.groups = {kWholeLayer}, .layers_at_once = num_layers};
}

/// Requests that as many layers are recomputed at once as the square root of the number of layers.
struct SquareRootOfLayers {
  bool operator==(const SquareRootOfLayers&) const = default;
};
using RecomputeRequest = std::variant<Recompute, SquareRootOfLayers>;

/// Where idle activations are between their forward and their backward.
enum class ActivationPlacement : uint8_t {
  Device,
  Offload,  ///< in host memory, if other chunks need their blocks earlier
};

/// When the updates of a step run.
enum class UpdateOrder : uint8_t {
  Wait,     ///< before the step ends
  Overlap,  ///< some are deferred: they run during the forward of the next step
  /// As Overlap. If updates wait for the norm, some chunks have a speculative update during the
  /// backward. An update that clipping changes is rolled back, and is made again during the forward
  /// of the next step.
  Speculate,
};

/// The settings. Each is a Field<T>, where T is the type of its value.
template <template <class> class Field, class RecomputeType>
struct ScheduleFields {
  Field<MicroBatchOrder> micro_batch_order = {};
  Field<RecomputeType> recompute = {};
  Field<ActivationPlacement> activations = {};
  /// Division::sums_on_devices: possible if the devices of a machine can read each other's memory
  /// (Budgets::peer_access), and for the groups of one rank. With several machines, only if sums
  /// are chained.
  Field<bool> sums_on_devices = {};
  /// Division::chains_sums. Ignored with one machine. If it is not given, is_chain_shorter()
  /// decides.
  Field<bool> chains_sums = {};
  /// With several machines (ignored with one): each machine has a copy of the weights of the
  /// others, to which a step fetches each chunk of another machine once (ChunkRecord::is_copied).
  /// Otherwise each rank fetches weights for itself before each load, or if loads are split, its
  /// part.
  Field<bool> copies_weights = {};
  /// Division::splits_loads: possible if the devices of a machine can read each other's memory
  /// (Budgets::peer_access), and can_split_loads() is true. If it is not given, it is true if it is
  /// possible, a split load of a chunk is faster by the rates of link and devices (no step is
  /// simulated), and a plan with it fits.
  Field<bool> splits_loads = {};
  Field<UpdateOrder> update = {};
  /// Which share (0 to 1) of the updates of a step without clipping is deferred.
  Field<double> deferred_share = {};
  /// Without clipping: how many finished gradients may wait in host memory for an update of this
  /// step; at least 1.
  Field<uint32_t> gradient_buffers = {};
  /// With UpdateOrder::Speculate: how many chunks have a speculative update. It is fewer if not so
  /// many can have one, or if host memory is too small for their undo logs.
  Field<uint32_t> speculated_chunks = {};
  /// How many chunks of weights are resident and updated by the host, if so many can be.
  Field<uint32_t> resident_chunks = {};
  /// How many chunks the device updates, if it has memory for so many. With several ranks: how many
  /// of each rank, the same number on all ranks; only if sums_on_devices is true.
  Field<uint32_t> device_updates = {};
  /// Of how many other chunks the gradient sums stay on the device between their uses, if it has
  /// memory for so many. The sums of the remaining chunks may be stored and loaded again for each
  /// micro-batch.
  Field<uint32_t> kept_sums = {};

  auto operator<=>(const ScheduleFields&) const = default;  ///< the order has no meaning
};
using Schedule = ScheduleFields<std::type_identity_t, Recompute>;
using ScheduleRequest = ScheduleFields<std::optional, RecomputeRequest>;

/// "none"; "layer"; "3 layers" at once; or the numbers of layers: "mlp in 4, norms in 8".
std::string name_of(const Recompute& recompute, uint32_t num_layers);
/// "device", ...; "horizontal", ...; "overlap", ...
std::string_view name_of(ActivationPlacement placement);
std::string_view name_of(MicroBatchOrder order);
std::string_view name_of(UpdateOrder update);

}  // namespace ebb

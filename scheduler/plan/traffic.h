// Why a plan copies chunks: the reason of each load and store, and the bytes by class and reason.
// Pure functions of a plan.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "chunk/layout.h"
#include "scheduler/plan/plan.h"

namespace ebb {

enum class MoveReason : uint8_t {
  None,  ///< the operation is neither a load, a store nor a share of sums (is_share())
  /// A load: the chunk was not on the device in this step before, nor at its beginning.
  FirstUse,
  /// A load: the chunk left the device to make room, and has not changed since. A store: the chunk
  /// leaves until it is loaded again.
  Evicted,
  /// A load: the optimizer changed the chunk after it was on the device. A store: a finished
  /// gradient, or the complete sums of a group, go where the update needs them.
  Update,
};
inline constexpr int kNumMoveReasons = 4;
/// "none", "first use", "evicted", "update"
std::string_view name_of(MoveReason reason);

/// [operation, as in plan.ops] Its reason.
std::vector<MoveReason> reasons_of_moves(const Plan& plan);

/// What a chunk contains: its space, or for other planes than the weights the state.
enum class TrafficClass : uint8_t { Weights, GradientSums, Gradients, Activations, State };
inline constexpr int kNumTrafficClasses = 5;
std::string_view name_of(TrafficClass traffic_class);
TrafficClass class_of(const Op& move);

struct MovedBytes {
  uint64_t loads = 0, loaded_bytes = 0;
  uint64_t stores = 0, stored_bytes = 0;

  bool is_empty() const { return loads + stores == 0; }
  uint64_t bytes() const { return loaded_bytes + stored_bytes; }
  MovedBytes& operator+=(const MovedBytes& other);
};
/// What a load or a store moves; `bytes`: what its chunk has in use. Nothing for other operations:
/// fetches and shares are not counted here.
MovedBytes moved_by(const Op& op, uint64_t bytes);

/// What the chunks of one class move for one reason.
struct TrafficRow {
  TrafficClass traffic_class;
  MoveReason reason;
  MovedBytes moved;
};

/// [class][reason] The sums are Plan::loaded_bytes and Plan::stored_bytes.
using TrafficTable = MovedBytes[kNumTrafficClasses][kNumMoveReasons];
struct Traffic {
  TrafficTable table = {};
  MovedBytes of(TrafficClass traffic_class, MoveReason reason) const {
    return table[static_cast<int>(traffic_class)][static_cast<int>(reason)];
  }
  MovedBytes of(TrafficClass traffic_class) const;
  MovedBytes of(MoveReason reason) const;
  MovedBytes total() const;
  /// What moves anything, sorted by class and then by reason.
  std::vector<TrafficRow> rows() const;
};
Traffic traffic_of(const Plan& plan, const Layout& layout);

}  // namespace ebb

#include "scheduler/plan/traffic.h"

#include <algorithm>
#include <array>

namespace ebb {
namespace {

/// Follows each chunk through the step.
class Visits {
 public:
  explicit Visits(const Plan& plan) {
    for (const ChunkIndex c : plan.chunks_that(&ChunkRecord::begins_on_device)) {
      visit({Space::Weights, c}).was_on_device = true;
    }
  }

  MoveReason reason_of(const Op& op) {
    const bool is_received = op.kind == OpKind::Receive && op.message == Message::Weights;
    if (op.kind == OpKind::Update || op.kind == OpKind::Speculate || is_received) {
      visit(op.chunk).is_updated = true;
    }
    if (op.kind != OpKind::Move || is_fetch(op) || is_load_part(op)) return MoveReason::None;
    if (op.to != Tier::Device) {
      const bool is_finished = op.chunk.space == Space::Gradients || op.slot != kNone;
      return is_finished ? MoveReason::Update : MoveReason::Evicted;
    }
    Visit& chunk = visit(op.chunk);
    const MoveReason reason = !chunk.was_on_device ? MoveReason::FirstUse
                              : chunk.is_updated   ? MoveReason::Update
                                                   : MoveReason::Evicted;
    chunk = {.was_on_device = true};
    return is_copy(op) ? reason : MoveReason::None;
  }

 private:
  struct Visit {
    bool was_on_device = false;
    bool is_updated = false;  // since it was loaded
  };

  Visit& visit(ChunkId chunk) {
    std::vector<Visit>& visits = visits_[static_cast<size_t>(chunk.space)];
    if (chunk.index >= visits.size()) visits.resize(chunk.index + 1);
    return visits[chunk.index];
  }

  std::array<std::vector<Visit>, kNumSpaces> visits_;  // [space][chunk]
};

}  // namespace

std::string_view name_of(MoveReason reason) {
  static constexpr std::string_view kNames[kNumMoveReasons] = {"none", "first use", "evicted",
                                                               "update"};
  return kNames[static_cast<int>(reason)];
}

std::vector<MoveReason> reasons_of_moves(const Plan& plan) {
  std::vector<MoveReason> reasons;
  reasons.reserve(plan.ops.size());
  Visits visits(plan);
  for (const Op& op : plan.ops) reasons.push_back(visits.reason_of(op));
  return reasons;
}

std::string_view name_of(TrafficClass traffic_class) {
  if (traffic_class == TrafficClass::State) return "state planes";
  return name_of(static_cast<Space>(traffic_class));
}

TrafficClass class_of(const Op& move) {
  if (move.chunk.space == Space::Weights && move.plane != kWeightPlane) return TrafficClass::State;
  return static_cast<TrafficClass>(move.chunk.space);
}

MovedBytes& MovedBytes::operator+=(const MovedBytes& other) {
  loads += other.loads;
  loaded_bytes += other.loaded_bytes;
  stores += other.stores;
  stored_bytes += other.stored_bytes;
  return *this;
}

MovedBytes moved_by(const Op& op, uint64_t bytes) {
  if (!is_copy(op)) return {};
  return op.to == Tier::Device ? MovedBytes{.loads = 1, .loaded_bytes = bytes}
                               : MovedBytes{.stores = 1, .stored_bytes = bytes};
}

MovedBytes Traffic::of(TrafficClass traffic_class) const {
  MovedBytes sum;
  for (const MovedBytes& moved : table[static_cast<int>(traffic_class)]) sum += moved;
  return sum;
}

MovedBytes Traffic::of(MoveReason reason) const {
  MovedBytes sum;
  for (const auto& by_reason : table) sum += by_reason[static_cast<int>(reason)];
  return sum;
}

MovedBytes Traffic::total() const {
  MovedBytes sum;
  for (int c = 0; c < kNumTrafficClasses; ++c) sum += of(static_cast<TrafficClass>(c));
  return sum;
}

std::vector<TrafficRow> Traffic::rows() const {
  std::vector<TrafficRow> rows;
  for (int c = 0; c < kNumTrafficClasses; ++c) {
    for (int r = 0; r < kNumMoveReasons; ++r) {
      const MovedBytes& moved = table[c][r];
      if (moved.is_empty()) continue;
      rows.push_back({static_cast<TrafficClass>(c), static_cast<MoveReason>(r), moved});
    }
  }
  return rows;
}

Traffic traffic_of(const Plan& plan, const Layout& layout) {
  Traffic traffic;
  const std::vector<MoveReason> reasons = reasons_of_moves(plan);
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (!is_copy(op)) continue;
    traffic.table[static_cast<int>(class_of(op))][static_cast<int>(reasons[i])] +=
        moved_by(op, bytes_of_move(op, layout, plan.division));
  }
  return traffic;
}

}  // namespace ebb

#include <iterator>
#include <utility>

#include "scheduler/search/choose.h"

namespace ebb {
namespace {

constexpr MicroBatchOrder kOrders[] = {MicroBatchOrder::Horizontal, MicroBatchOrder::Vertical};
constexpr Recompute kRecomputes[] = {Recompute::None, Recompute::Layer, Recompute::Sqrt};
constexpr ActivationPlacement kPlacements[] = {ActivationPlacement::Device,
                                               ActivationPlacement::Offload};
constexpr UpdateOrder kUpdates[] = {UpdateOrder::Overlap, UpdateOrder::Wait};

template <class T, size_t N>
std::vector<T> values_of(T requested, const T (&all)[N]) {
  if (requested != T::Auto) return {requested};
  return std::vector<T>(std::begin(all), std::end(all));
}

// A step that speculates must be faster by this factor. If every step were clipped, speculation
// would make steps slower by less than that (docs/undo.md).
constexpr double kWorthOfSpeculation = 1.03;

/// The time by which candidates are compared.
double compared_seconds(const Candidate& c) {
  return c.update == UpdateOrder::Speculate ? kWorthOfSpeculation * c.seconds : c.seconds;
}

}  // namespace

std::vector<TrainerOptions> settings_to_try(const TrainerOptions& options, const Budgets& budgets) {
  const bool one_order = options.gradient_accumulation == 1 || !budgets.device_memory;
  std::vector<ActivationPlacement> placements = values_of(options.activations, kPlacements);
  if (!budgets.device_memory) placements.resize(1);
  std::vector<TrainerOptions> settings;
  for (const MicroBatchOrder order : values_of(options.micro_batch_order, kOrders)) {
    const bool redundant =
        options.micro_batch_order == MicroBatchOrder::Auto && one_order && order != kOrders[0];
    if (redundant) continue;
    for (const Recompute recompute : values_of(options.recompute, kRecomputes)) {
      for (const ActivationPlacement placement : placements) {
        settings.push_back(options);
        settings.back().micro_batch_order = order;
        settings.back().recompute = recompute;
        settings.back().activations = placement;
      }
    }
  }
  return settings;
}

std::vector<UpdateOrder> update_orders(const TrainerOptions& options) {
  return values_of(options.update, kUpdates);
}

bool is_better(const Candidate& a, const Candidate& b) {
  const double a_s = compared_seconds(a), b_s = compared_seconds(b);
  if (a_s < b_s * (1 - kEqualSeconds)) return true;
  if (a_s > b_s * (1 + kEqualSeconds)) return false;
  return std::pair(a.moved_bytes, a.flops) < std::pair(b.moved_bytes, b.flops);
}

}  // namespace ebb

#include "scheduler/search/settings.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "scheduler/search/prepare.h"

namespace ebb {
namespace {

constexpr MicroBatchOrder kOrders[] = {MicroBatchOrder::Horizontal, MicroBatchOrder::Vertical};
constexpr RecomputeRequest kRecomputes[] = {kRecomputeNone, kRecomputeEach, SquareRootOfLayers{}};
constexpr ActivationPlacement kPlacements[] = {ActivationPlacement::Device,
                                               ActivationPlacement::Offload};
constexpr UpdateOrder kUpdates[] = {UpdateOrder::Overlap, UpdateOrder::Wait};

template <class T, size_t N>
std::vector<T> values_of(const std::optional<T>& requested, const T (&all)[N]) {
  if (requested) return {*requested};
  return std::vector<T>(std::begin(all), std::end(all));
}

/// The share of deferred updates is a multiple of 1/40.
constexpr uint32_t kShares = 40;

/// Patterns of recomputed layers, sorted by first / of.
constexpr Recompute kPatterns[] = {{1, 1, 8}, {1, 1, 6}, {1, 1, 4}, {1, 1, 3},
                                   {1, 1, 2}, {1, 2, 3}, {1, 3, 4}};

/// Does the schedule recompute by a pattern? It does so with offloading: the layers that are
/// recomputed are spread. Otherwise the first layers are recomputed.
bool spreads(const Schedule& s) {
  return s.activations == ActivationPlacement::Offload && s.recompute.layers_at_once == 1;
}

/// The amount of recomputation is a number from 1 to `most`, which means all layers. It is the
/// number of a pattern, counted from 1, or a number of layers.
Setting recomputation(bool may_change, const Preparation& context, const Schedule& schedule) {
  const uint32_t most =
      spreads(schedule) ? static_cast<uint32_t>(std::size(kPatterns)) + 1 : context.num_layers;
  const auto now = [most](const Schedule& s) -> uint32_t {
    if (s.recompute.first == kAllLayers) return most;
    if (s.recompute.of == kAllLayers) return s.recompute.first;
    return static_cast<uint32_t>(std::ranges::find(kPatterns, s.recompute) - kPatterns) + 1;
  };
  const auto set = [most](uint32_t amount, Schedule& s) {
    s.recompute = {.layers_at_once = s.recompute.layers_at_once};
    if (amount == most) return;
    if (spreads(s)) {
      s.recompute = kPatterns[amount - 1];
    } else {
      s.recompute.first = amount;
    }
  };
  return {.name = "recompute",
          .kind = SearchKind::Traces,
          .may_change = may_change && schedule.recompute.layers_at_once > 0,
          .least = 1,
          .most = most,
          .now = now,
          .set = set};
}

/// Finished gradients wait in host memory if the optimizer is slower than the backward. Value n
/// means kGradientBuffers * 2^n buffers, and the largest value means one for every chunk.
Setting gradient_buffers(bool may_change, uint32_t num_chunks) {
  const auto value_of = [](uint32_t buffers) {
    const uint32_t quotient = (buffers + kGradientBuffers - 1) / kGradientBuffers;
    return static_cast<uint32_t>(std::bit_width(std::max(quotient, 1u) - 1));
  };
  return {.name = "gradient_buffers",
          .kind = SearchKind::Fewest,
          .may_change = may_change,
          .most = value_of(num_chunks),
          .now = [value_of](const Schedule& s) { return value_of(s.gradient_buffers); },
          .set =
              [num_chunks](uint32_t value, Schedule& s) {
                s.gradient_buffers = std::min(kGradientBuffers << value, num_chunks);
              },
          .takes_host_memory = true};
}

}  // namespace

std::vector<Schedule> schedules_to_try(const Model& model, const TrainerOptions& options,
                                       const Budgets& budgets) {
  const ScheduleRequest& request = options.schedule;
  const bool one_order = options.gradient_accumulation == 1 || !budgets.device_memory;
  std::vector<MicroBatchOrder> orders = values_of(request.micro_batch_order, kOrders);
  if (one_order) orders.resize(1);
  std::vector<ActivationPlacement> placements = values_of(request.activations, kPlacements);
  if (!budgets.device_memory) placements.resize(1);
  std::vector<Recompute> recomputes;
  for (const RecomputeRequest& recompute : values_of(request.recompute, kRecomputes)) {
    recomputes.push_back(resolve(recompute, model));
  }
  std::vector<Schedule> schedules;
  for (const MicroBatchOrder order : orders) {
    for (const Recompute& recompute : recomputes) {
      for (const ActivationPlacement placement : placements) {
        schedules.push_back(
            {.micro_batch_order = order,
             .recompute = recompute,
             .activations = placement,
             .deferred_share = request.deferred_share.value_or(kDeferredShare),
             .gradient_buffers = request.gradient_buffers.value_or(kGradientBuffers),
             .resident_chunks = request.resident_chunks.value_or(0),
             .device_updates = request.device_updates.value_or(0)});
      }
    }
  }
  return schedules;
}

std::vector<UpdateOrder> update_orders(const ScheduleRequest& request) {
  return values_of(request.update, kUpdates);
}

// If updates wait for the norm, the plan has no resident weights that the host updates, and either
// all updates are deferred or none. Chunks with a deferred update cannot be resident.
std::vector<Setting> settings_of(const TrainerOptions& requested, const Preparation& context,
                                 const Schedule& now) {
  const ScheduleRequest& request = requested.schedule;
  const bool after_norm = updates_after_norm(requested);
  const bool may_speculate = now.update == UpdateOrder::Speculate ||
                             (now.update == UpdateOrder::Overlap && !request.update);
  const uint32_t num_chunks = context.layout->num_chunks();
  std::vector<Setting> settings = {
      {.name = "device_updates",
       .may_change = !request.device_updates,
       .most = most_device_updates(context),
       .now = &Schedule::device_updates,
       .set = [](uint32_t value, Schedule& s) { s.device_updates = value; },
       .takes_blocks = true},
      {.name = "speculated_chunks",
       .may_change = may_choose_speculated(requested) && may_speculate,
       .least = 1,  // 0 is the same as Overlap
       .most = num_chunks,
       .now = &Schedule::speculated_chunks,
       .set =
           [](uint32_t value, Schedule& s) {
             s.update = UpdateOrder::Speculate;
             s.speculated_chunks = value;
           },
       .takes_host_memory = true,
       .adds_candidate = now.update != UpdateOrder::Speculate},
      {.name = "resident_chunks",
       .may_change = !request.resident_chunks && !after_norm,
       .most = context.num_blocks - context.smallest_blocks,
       .now = &Schedule::resident_chunks,
       .set = [](uint32_t value, Schedule& s) { s.resident_chunks = value; },
       .takes_blocks = true},
      {.name = "deferred_share",
       .may_change = !request.deferred_share && !after_norm && now.update != UpdateOrder::Wait,
       .most = kShares,
       .now = [](const Schedule& s) -> uint32_t {
         return static_cast<uint32_t>(std::lround(s.deferred_share * kShares));
       },
       .set = [](uint32_t value,
                 Schedule& s) { s.deferred_share = static_cast<double>(value) / kShares; }},
      gradient_buffers(!request.gradient_buffers && !after_norm, num_chunks),
      recomputation(!request.recompute.has_value(), context, now)};
  std::erase_if(settings, [](const Setting& s) { return !s.may_change; });
  return settings;
}

}  // namespace ebb

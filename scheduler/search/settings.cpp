#include "scheduler/search/settings.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <span>

#include "scheduler/search/prepare.h"

namespace ebb {
namespace {

constexpr MicroBatchOrder kOrders[] = {MicroBatchOrder::Horizontal, MicroBatchOrder::Vertical};
const RecomputeRequest kRecomputes[] = {kRecomputeNone, Recompute{.groups = {kNormsLevel}},
                                        kRecomputeEach, SquareRootOfLayers{}};
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

/// What a layer may recompute, from the least to the most.
constexpr ValueGroups kLevels[] = {kKeepAll, kNormsLevel, kMlpLevel, kAttentionLevel, kWholeLayer};
constexpr ValueGroups kWholeOrNothing[] = {kKeepAll, kWholeLayer};

/// If activations may leave the device, the choice for so many layers is repeated.
constexpr uint32_t kPattern = 12;

/// An amount of recomputation: of each `length` layers, amount % length have the level
/// amount / length + 1, and the others the level amount / length.
struct RecomputeAmounts {
  std::span<const ValueGroups> levels;
  uint32_t length;
  /// Layers with the higher level are spread. Then the link has time to copy the activations of the
  /// others. If not spread, they are the first: their activations would be kept the longest.
  bool spreads;

  uint32_t most() const { return static_cast<uint32_t>(levels.size() - 1) * length; }

  std::vector<ValueGroups> groups(uint32_t amount) const {
    const uint32_t level = amount / length, more = amount % length;
    if (more == 0) return {levels[level]};
    std::vector<ValueGroups> groups(length, levels[level]);
    for (uint32_t i = 0; i < length; ++i) {
      const bool is_chosen = spreads ? (i + 1) * more / length > i * more / length : i < more;
      if (is_chosen) groups[i] = levels[level + 1];
    }
    return groups;
  }

  uint32_t amount(const std::vector<ValueGroups>& groups) const {
    const auto level =
        static_cast<uint32_t>(std::ranges::find(levels, std::ranges::min(groups)) - levels.begin());
    if (groups.size() == 1) return level * length;
    return level * length +
           static_cast<uint32_t>(std::ranges::count(groups, std::ranges::max(groups)));
  }
};

Setting recomputation(bool may_change, const Preparation& context, const Schedule& schedule) {
  const bool one_by_one = schedule.recompute.layers_at_once == 1;
  const bool spreads = one_by_one && schedule.activations == ActivationPlacement::Offload;
  const RecomputeAmounts amounts{
      .levels = one_by_one ? std::span<const ValueGroups>(kLevels) : kWholeOrNothing,
      .length = spreads ? kPattern : std::max(context.num_layers, 1u),
      .spreads = spreads};
  return {.name = "recompute",
          .kind = SearchKind::Traces,
          .may_change = may_change && !schedule.recompute.groups.empty(),
          .least = 1,
          .most = amounts.most(),
          .now = [amounts](const Schedule& s) { return amounts.amount(s.recompute.groups); },
          .set = [amounts](uint32_t amount,
                           Schedule& s) { s.recompute.groups = amounts.groups(amount); }};
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
  const Division division = division_of(options, budgets.place);
  const uint32_t num_micro_batches = share_of(division, budgets.place.rank).micro_batches.count;
  const bool one_order = num_micro_batches == 1 || !budgets.device_memory;
  std::vector<MicroBatchOrder> orders = values_of(request.micro_batch_order, kOrders);
  if (one_order) orders.resize(1);
  std::vector<ActivationPlacement> placements = values_of(request.activations, kPlacements);
  if (!budgets.device_memory) placements.resize(1);
  const bool may_sum_on_devices = budgets.peer_access && budgets.place.num_ranks > 1 &&
                                  (budgets.place.num_machines == 1 || division.chains_sums);
  std::vector<bool> sums_on_devices = {request.sums_on_devices.value_or(may_sum_on_devices)};
  if (may_sum_on_devices && !request.sums_on_devices) sums_on_devices.push_back(false);
  std::vector<Recompute> recomputes;
  for (const RecomputeRequest& recompute : values_of(request.recompute, kRecomputes)) {
    recomputes.push_back(resolve(recompute, model));
  }
  std::vector<Schedule> schedules;
  for (const MicroBatchOrder order : orders) {
    for (const Recompute& recompute : recomputes) {
      for (const ActivationPlacement placement : placements) {
        for (const bool on_devices : sums_on_devices) {
          schedules.push_back(
              {.micro_batch_order = order,
               .recompute = recompute,
               .activations = placement,
               .sums_on_devices = on_devices,
               .chains_sums = division.chains_sums,
               .splits_loads = request.splits_loads.value_or(false),
               .deferred_share = request.deferred_share.value_or(kDeferredShare),
               .gradient_buffers = request.gradient_buffers.value_or(kGradientBuffers),
               .resident_chunks = request.resident_chunks.value_or(0),
               .device_updates = request.device_updates.value_or(0),
               .kept_sums = request.kept_sums.value_or(0)});
        }
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
//
// The search changes the share of deferred updates before the number of device updates: with a poor
// share it chooses too many device updates, and after that no other share is better.
std::vector<Setting> settings_of(const TrainerOptions& requested, const Preparation& context,
                                 const Schedule& now) {
  const ScheduleRequest& request = requested.schedule;
  const bool after_norm = updates_after_norm(requested);
  const bool may_speculate = now.update == UpdateOrder::Speculate ||
                             (now.update == UpdateOrder::Overlap && !request.update);
  const uint32_t num_chunks = context.layout->num_chunks();
  std::vector<Setting> settings = {
      {.name = "deferred_share",
       .may_change = !request.deferred_share && !after_norm && now.update != UpdateOrder::Wait,
       .most = kShares,
       .now = [](const Schedule& s) -> uint32_t {
         return static_cast<uint32_t>(std::lround(s.deferred_share * kShares));
       },
       .set = [](uint32_t value,
                 Schedule& s) { s.deferred_share = static_cast<double>(value) / kShares; }},
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
      {.name = "kept_sums",
       .may_change = !request.kept_sums && requested.gradient_accumulation > 1 &&
                     !context.division.stores_groups() &&
                     now.micro_batch_order == MicroBatchOrder::Horizontal,
       .most = std::min(num_chunks, (context.num_blocks - context.smallest_blocks) /
                                        context.layout->gradient_chunks_per_chunk()),
       .now = &Schedule::kept_sums,
       .set = [](uint32_t value, Schedule& s) { s.kept_sums = value; },
       .takes_blocks = true},
      gradient_buffers(!request.gradient_buffers && !after_norm, num_chunks),
      recomputation(!request.recompute.has_value(), context, now)};
  std::erase_if(settings, [](const Setting& s) { return !s.may_change; });
  return settings;
}

}  // namespace ebb

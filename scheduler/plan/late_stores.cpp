#include "scheduler/plan/late_stores.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "device/errors.h"

namespace ebb {
namespace {

/// Where an operation comes in the new order. 2 i + 1 is the place of operation i of the old order,
/// and 2 i is just before it. Operations at the same place keep their order.
using Place = uint64_t;

std::vector<Place> places_of(const Plan& plan, std::span<const OpTime> times, uint32_t num_ahead) {
  std::vector<Place> places(plan.ops.size());
  std::vector<OpIndex> stores;
  std::array<Place, kNumStreamKinds> last{};  // of each stream
  OpIndex call{0};                            // the first one that starts late enough
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    Place& place = places[i];
    place = 2 * Place{i} + 1;
    if (op.stream == StreamKind::Store) {
      if (stores.size() >= num_ahead) {
        const double start_s = times[stores[stores.size() - num_ahead]].start_s;
        while (call < plan.ops.size() &&
               (plan.ops[call].kind != OpKind::Call || times[call].start_s < start_s)) {
          ++call;
        }
        place = std::max(place, 2 * Place{call});
      }
      stores.push_back(i);
    }
    Place& before = last[static_cast<int>(op.stream)];
    place = std::max(place, before);
    for (const OpIndex w : plan.waits_of(op)) place = std::max(place, places[w]);
    before = place;
  }
  return places;
}

}  // namespace

Plan with_late_stores(Plan plan, std::span<const OpTime> times, uint32_t num_ahead) {
  EBB_CHECK(num_ahead > 0, "stores are listed before they start");
  EBB_CHECK(times.size() == plan.ops.size(), "the times are those of the plan");
  const std::vector<Place> places = places_of(plan, times, num_ahead);
  std::vector<OpIndex> order(plan.ops.size());  // [new] old
  std::iota(order.begin(), order.end(), OpIndex{0});
  std::ranges::stable_sort(order, {}, [&](OpIndex i) { return places[i]; });

  std::vector<OpIndex> new_index(plan.ops.size());
  std::vector<Op> ops;
  ops.reserve(plan.ops.size());
  for (const OpIndex old : order) {
    new_index[old] = OpIndex(ops.size());
    ops.push_back(plan.ops[old]);
  }
  plan.ops = std::move(ops);
  for (OpIndex& wait : plan.waits) wait = new_index[wait];
  return plan;
}

}  // namespace ebb

#include "tests/scheduler/plan_reference.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <stdexcept>

namespace ebb::test {
namespace {

uint32_t next_item_with(const Program& program, uint32_t chunk, uint32_t from) {
  for (uint32_t i = from; i < program.items.size(); ++i) {
    for (const ChunkUse& use : program.uses_of(program.items[i])) {
      if (use.chunk == chunk) return i;
    }
  }
  return UINT32_MAX;
}

}  // namespace

uint64_t count_loads_by_scanning(const Program& program, uint32_t num_blocks) {
  std::set<uint32_t> here;
  uint32_t num_activations = 0;
  uint64_t num_loads = 0;
  for (uint32_t i = 0; i < program.items.size(); ++i) {
    const ProgramItem& item = program.items[i];
    num_activations += item.num_begins;
    for (const ChunkUse& use : program.uses_of(item)) {
      if (here.insert(use.chunk).second && use.touch != Touch::Create) ++num_loads;
    }
    while (here.size() + num_activations > num_blocks) {
      uint32_t victim = UINT32_MAX, furthest = i;
      for (uint32_t chunk : here) {
        const uint32_t next = next_item_with(program, chunk, i);
        if (next > furthest) furthest = next, victim = chunk;
      }
      if (victim == UINT32_MAX) throw std::logic_error("too few blocks");
      here.erase(victim);
    }
    std::erase_if(here, [&](uint32_t chunk) {
      return next_item_with(program, chunk, i + 1) == UINT32_MAX;
    });
    num_activations -= item.num_ends;
  }
  return num_loads;
}

uint64_t count_loads_by_trying_all(const Program& program, uint32_t num_blocks) {
  std::map<uint32_t, uint64_t> loads_with{{0, 0}};  // chunks here, as bits -> fewest loads so far
  uint32_t num_activations = 0;
  for (uint32_t i = 0; i < program.items.size(); ++i) {
    const ProgramItem& item = program.items[i];
    num_activations += item.num_begins;
    uint32_t needed = 0, created = 0;
    for (const ChunkUse& use : program.uses_of(item)) {
      needed |= 1u << use.chunk;
      if (use.touch == Touch::Create) created |= 1u << use.chunk;
    }
    std::map<uint32_t, uint64_t> after;
    for (const auto& [here, loads] : loads_with) {
      const uint64_t now = loads + static_cast<uint64_t>(std::popcount(needed & ~here & ~created));
      const uint32_t others = here & ~needed;
      for (uint32_t kept = others;; kept = (kept - 1) & others) {
        if (static_cast<uint32_t>(std::popcount(kept | needed)) + num_activations <= num_blocks) {
          const auto [at, added] = after.try_emplace(kept | needed, now);
          if (!added) at->second = std::min(at->second, now);
        }
        if (kept == 0) break;
      }
    }
    loads_with = std::move(after);
    num_activations -= item.num_ends;
  }
  uint64_t least = UINT64_MAX;
  for (const auto& [here, loads] : loads_with) least = std::min(least, loads);
  return least;
}

// Three points a operation: the mover (or the lane) reaches it, it starts, it is done.
std::vector<std::vector<bool>> reachability(const Plan& plan) {
  const uint32_t n = static_cast<uint32_t>(plan.ops.size());
  const auto reached = [](uint32_t i) { return 3 * i; };
  const auto started = [](uint32_t i) { return 3 * i + 1; };
  const auto done = [](uint32_t i) { return 3 * i + 2; };
  std::vector<std::vector<uint32_t>> before(3 * n);
  uint32_t last_of_lane[kNumLanes] = {kNone, kNone, kNone, kNone};
  uint32_t last_copy = kNone;
  for (uint32_t i = 0; i < n; ++i) {
    const Op& op = plan.ops[i];
    before[started(i)].push_back(reached(i));
    before[done(i)].push_back(started(i));
    for (uint32_t w : plan.waits_of(op)) before[reached(i)].push_back(done(w));
    uint32_t& last = last_of_lane[static_cast<int>(op.lane)];
    const bool copies = op.lane == Lane::Load && op.kind == OpKind::Move && op.from != Tier::None;
    if (last != kNone) {
      const Op& previous = plan.ops[last];
      const bool previous_copies = op.lane == Lane::Load && previous.kind == OpKind::Move &&
                                   previous.from != Tier::None;
      before[reached(i)].push_back(previous_copies ? reached(last) : done(last));
    }
    if (copies && last_copy != kNone) before[started(i)].push_back(done(last_copy));
    if (copies) last_copy = i;
    last = i;
  }
  std::vector<std::vector<bool>> result(n, std::vector<bool>(n, false));
  for (uint32_t i = 0; i < n; ++i) {
    std::vector<bool> seen(3 * n, false);
    std::vector<uint32_t> stack{started(i)};
    while (!stack.empty()) {
      const uint32_t point = stack.back();
      stack.pop_back();
      for (uint32_t p : before[point]) {
        if (seen[p]) continue;
        seen[p] = true;
        if (p % 3 == 2) result[i][p / 3] = true;
        stack.push_back(p);
      }
    }
  }
  return result;
}

}  // namespace ebb::test

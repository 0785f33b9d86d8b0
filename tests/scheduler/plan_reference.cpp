#include "tests/scheduler/plan_reference.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

namespace ebb::test {
namespace {

std::span<const FlatIndex> begins_of(const ChunkTrace& chunk_trace, const ChunkTraceItem& item) {
  return chunk_trace.chunks_of(item, ArenaChunkEvent::Begin);
}
std::span<const FlatIndex> wakes_of(const ChunkTrace& chunk_trace, const ChunkTraceItem& item) {
  return chunk_trace.chunks_of(item, ArenaChunkEvent::Needed);
}

uint32_t next_item_with(const ChunkTrace& chunk_trace, uint32_t chunk, uint32_t from) {
  for (uint32_t i = from; i < chunk_trace.items.size(); ++i) {
    for (uint32_t begin : begins_of(chunk_trace, chunk_trace.items[i])) {
      if (begin == chunk) return i;
    }
    for (uint32_t wake : wakes_of(chunk_trace, chunk_trace.items[i])) {
      if (wake == chunk) return i;
    }
    for (const ChunkUse& use : chunk_trace.uses_of(chunk_trace.items[i])) {
      if (use.chunk == chunk) return i;
    }
  }
  return UINT32_MAX;
}

/// Updates the set of activation chunks that are allocated and not idle from item i - 1 to item i.
void update_alive(const ChunkTrace& chunk_trace, uint32_t i, std::set<uint32_t>& alive) {
  if (i > 0) {
    const ChunkTraceItem& before = chunk_trace.items[i - 1];
    for (const ArenaChunkEvent event : {ArenaChunkEvent::Idle, ArenaChunkEvent::End}) {
      for (uint32_t chunk : chunk_trace.chunks_of(before, event)) alive.erase(chunk);
    }
  }
  for (uint32_t begin : begins_of(chunk_trace, chunk_trace.items[i])) alive.insert(begin);
  for (uint32_t wake : wakes_of(chunk_trace, chunk_trace.items[i])) alive.insert(wake);
}

}  // namespace

Assignments count_by_scanning(const ChunkTrace& chunk_trace, uint32_t num_blocks) {
  std::set<uint32_t> here, alive;
  Assignments assignments;
  for (uint32_t i = 0; i < chunk_trace.items.size(); ++i) {
    update_alive(chunk_trace, i, alive);
    std::set<uint32_t> needed = alive;
    for (uint32_t begin : begins_of(chunk_trace, chunk_trace.items[i])) {
      if (here.insert(begin).second) ++assignments.creates;
    }
    for (uint32_t wake : wakes_of(chunk_trace, chunk_trace.items[i])) {
      if (here.insert(wake).second) ++assignments.loads;
    }
    for (const ChunkUse& use : chunk_trace.uses_of(chunk_trace.items[i])) {
      needed.insert(use.chunk);
      if (here.insert(use.chunk).second)
        ++(use.touch == Touch::Create ? assignments.creates : assignments.loads);
    }
    while (here.size() > num_blocks) {
      uint32_t victim = UINT32_MAX, furthest = i;
      for (uint32_t chunk : here) {
        const uint32_t next =
            needed.contains(chunk) ? i : next_item_with(chunk_trace, chunk, i + 1);
        if (next > furthest) furthest = next, victim = chunk;
      }
      if (victim == UINT32_MAX) throw std::logic_error("too few blocks");
      here.erase(victim);
    }
  }
  return assignments;
}

uint64_t fewest_by_trying_all(const ChunkTrace& chunk_trace, uint32_t num_blocks, bool only_loads) {
  std::map<uint32_t, uint64_t> assignments_with{
      {0, 0}};  // chunks on the device, as bits -> fewest assignments so far
  std::set<uint32_t> alive;
  for (uint32_t i = 0; i < chunk_trace.items.size(); ++i) {
    update_alive(chunk_trace, i, alive);
    uint32_t needed = 0, free_of_charge = 0;
    for (uint32_t chunk : alive) needed |= 1u << chunk;
    if (only_loads) free_of_charge = needed;
    for (uint32_t wake : wakes_of(chunk_trace, chunk_trace.items[i]))
      free_of_charge &= ~(1u << wake);
    for (const ChunkUse& use : chunk_trace.uses_of(chunk_trace.items[i])) {
      needed |= 1u << use.chunk;
      if (only_loads && use.touch == Touch::Create) free_of_charge |= 1u << use.chunk;
    }
    std::map<uint32_t, uint64_t> after;
    for (const auto& [here, assignments] : assignments_with) {
      const uint64_t now =
          assignments + static_cast<uint64_t>(std::popcount(needed & ~here & ~free_of_charge));
      const uint32_t others = here & ~needed;
      for (uint32_t kept = others;; kept = (kept - 1) & others) {
        if (static_cast<uint32_t>(std::popcount(kept | needed)) <= num_blocks) {
          const auto [at, added] = after.try_emplace(kept | needed, now);
          if (!added) at->second = std::min(at->second, now);
        }
        if (kept == 0) break;
      }
    }
    assignments_with = std::move(after);
  }
  uint64_t least = UINT64_MAX;
  for (const auto& [here, assignments] : assignments_with) least = std::min(least, assignments);
  return least;
}

// Each operation has three points in time: its waits have ended, it starts, it is done. The copy
// thread waits for the operations of the load stream one after the other. The program thread does
// the same for the operations of the compute stream that allocate or drop. But a drop is done after
// its own waits.
std::vector<std::vector<bool>> reachability(const Plan& plan) {
  const uint32_t n = static_cast<uint32_t>(plan.ops.size());
  const auto reached = [](uint32_t i) { return 3 * i; };
  const auto started = [](uint32_t i) { return 3 * i + 1; };
  const auto done = [](uint32_t i) { return 3 * i + 2; };
  const auto is_instant = [&](uint32_t i) {
    const Op& op = plan.ops[i];
    return op.kind == OpKind::Drop || (op.kind == OpKind::Move && op.from == Tier::None);
  };
  const auto by_copy_thread = [&](uint32_t i) { return plan.ops[i].stream == StreamKind::Load; };
  std::vector<std::vector<uint32_t>> before(3 * n);
  // An instant operation has no event. An operation that waits for it waits for the same
  // operations.
  const std::function<void(uint32_t, uint32_t)> wait = [&](uint32_t point, uint32_t w) {
    if (!is_instant(w)) return before[point].push_back(done(w));
    for (uint32_t v : plan.waits_of(plan.ops[w])) wait(point, v);
  };
  uint32_t last_instant[2] = {kNone, kNone};  // by the program thread, by the copy thread
  std::array<uint32_t, kNumStreamKinds> last_timed;
  last_timed.fill(kNone);
  for (uint32_t i = 0; i < n; ++i) {
    const bool drops = plan.ops[i].kind == OpKind::Drop;
    if (!drops) before[started(i)].push_back(reached(i));
    before[done(i)].push_back(started(i));
    for (uint32_t w : plan.waits_of(plan.ops[i])) {
      wait(reached(i), w);
      if (drops) wait(started(i), w);
    }
    const StreamKind stream = plan.ops[i].stream;
    if (stream == StreamKind::Load || stream == StreamKind::Compute) {
      uint32_t& last = last_instant[by_copy_thread(i)];
      if (last != kNone) before[reached(i)].push_back(reached(last));
      if (is_instant(i) || by_copy_thread(i)) last = i;
    }
    if (is_instant(i)) continue;
    const uint32_t last = std::exchange(last_timed[static_cast<int>(stream)], i);
    if (last == kNone) continue;
    before[started(i)].push_back(done(last));
  }
  // `passed`: how far each thread has waited for the operations of the other thread.
  std::vector<std::vector<bool>> result(n, std::vector<bool>(n, false));
  uint32_t passed[2] = {0, 0};
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
    for (uint32_t w : plan.waits_of(plan.ops[i])) {
      if (by_copy_thread(i) || by_copy_thread(w))
        passed[by_copy_thread(i)] = std::max(passed[by_copy_thread(i)], w + 1);
    }
    for (uint32_t a = 0; a < i; ++a) {
      if (!is_instant(a)) continue;
      const bool noted = by_copy_thread(a) == by_copy_thread(i) || a < passed[by_copy_thread(i)];
      const auto waits = plan.waits_of(plan.ops[a]);
      result[i][a] = noted && std::ranges::all_of(waits, [&](uint32_t w) { return result[i][w]; });
    }
  }
  return result;
}

}  // namespace ebb::test

#include "scheduler/plan/validation_order.h"

#include <fmt/format.h>

#include "chunk/index_format.h"
#include "scheduler/plan/timeline.h"

namespace ebb::validation {
namespace {

constexpr uint32_t kProgram = 0, kCopyThread = 1;

uint32_t thread_of(const Op& op) { return is_of_copy_thread(op) ? kCopyThread : kProgram; }
uint32_t stream_of(const Op& op) { return static_cast<uint32_t>(op.stream); }

template <class Clock>
void join(Clock& clock, const Clock& other) {
  for (size_t stream = 0; stream < clock.size(); ++stream)
    clock[stream] = std::max(clock[stream], other[stream]);
}

}  // namespace

Order::Order(const Plan& plan) : plan_(plan) {
  positions_.reserve(plan.ops.size());
  starts_.reserve(plan.ops.size());
  seen_.reserve(plan.ops.size());
  for (OpIndex i{0}; i < plan.ops.size(); ++i) add(i);
}

/// Only the waits that exist: a wrong plan may say that it has more.
std::span<const OpIndex> Order::waits_of(OpIndex op) const {
  const std::span<const OpIndex> all = plan_.waits;
  const size_t first = std::min<size_t>(plan_.ops[op].first_wait, all.size());
  return all.subspan(first, std::min<size_t>(plan_.ops[op].num_waits, all.size() - first));
}

bool Order::has_seen(OpIndex a, OpIndex b) const {
  return a < b && (thread_of(plan_.ops[a]) == thread_of(plan_.ops[b]) || a < seen_[b]);
}

bool Order::before(OpIndex a, OpIndex b) const {
  if (!takes_no_time(plan_.ops[a])) return starts_[b][stream_of(plan_.ops[a])] > positions_[a];
  return has_seen(a, b) &&
         std::ranges::all_of(waits_of(a), [&](OpIndex w) { return w < a && before(w, b); });
}

Order::Clock Order::clock_after(OpIndex op) const {
  Clock clock = starts_[op];
  clock[stream_of(plan_.ops[op])] = positions_[op] + 1;
  return clock;
}

/// Joins the clocks of what an operation waits for. An operation that takes no time has no event,
/// so its own waits count instead.
void Order::join_waits(Clock& clock, OpIndex op) const {
  for (const OpIndex w : waits_of(op)) {
    if (w >= op) continue;  // add() complains of it
    if (takes_no_time(plan_.ops[w])) {
      join_waits(clock, w);
    } else {
      join(clock, clock_after(w));
    }
  }
}

void Order::add(OpIndex i) {
  const Op& op = plan_.ops[i];
  const uint32_t stream = stream_of(op), thread = thread_of(op);
  if (waits_of(i).size() < op.num_waits) {
    messages_.push_back(
        fmt::format("op {} ({}): has more waits than are there", i, name_of(op.kind)));
  }
  for (const OpIndex w : waits_of(i)) {
    if (w >= i) {
      messages_.push_back(fmt::format("op {} ({}): waits for op {}, which does not come before it",
                                      i, name_of(op.kind), w));
    } else if (thread == kCopyThread || thread_of(plan_.ops[w]) == kCopyThread) {
      last_seen_[thread] = std::max(last_seen_[thread], w + 1);
    }
  }
  seen_.push_back(last_seen_[thread]);
  if (takes_no_time(op) || op.stream == StreamKind::Load) join_waits(waited_[thread], i);
  if (takes_no_time(op)) {
    Clock start = op.kind == OpKind::Drop ? Clock{} : waited_[thread];
    join_waits(start, i);
    starts_.push_back(start);
    positions_.push_back(0);
    return;
  }
  Clock start = stream_clocks_[stream];
  if (op.stream == StreamKind::Compute || op.stream == StreamKind::Load)
    join(start, waited_[thread]);
  join_waits(start, i);
  starts_.push_back(start);
  positions_.push_back(lengths_[stream]++);
  stream_clocks_[stream] = clock_after(i);
}

}  // namespace ebb::validation

#include "scheduler/plan/timeline.h"

#include <algorithm>
#include <array>

namespace ebb {
namespace {

/// When the last of the operations has ended that an operation waits for.
double ready_s(const Plan& plan, std::span<const OpTime> times, const Op& op) {
  double ready = 0;
  for (const OpIndex w : plan.waits_of(op)) ready = std::max(ready, times[w].end_s);
  return ready;
}

}  // namespace

bool takes_no_time(const Op& op) {
  return op.kind == OpKind::Drop || (op.kind == OpKind::Move && op.from == Tier::None);
}

void fill_times(const Plan& plan, const std::function<double(OpIndex)>& end_s,
                std::span<OpTime> times) {
  std::array<double, kNumStreamKinds> stream_free{};
  double copy_thread_s = 0;
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    double& free_s = stream_free[static_cast<int>(op.stream)];
    double start_s = ready_s(plan, times, op);
    if (op.stream == StreamKind::Load) start_s = copy_thread_s = std::max(copy_thread_s, start_s);
    if (op.stream == StreamKind::Load && takes_no_time(op)) {
      times[i] = {start_s, start_s};
      continue;
    }
    start_s = std::max(start_s, free_s);
    times[i] = {start_s, takes_no_time(op) ? start_s : std::max(start_s, end_s(i))};
    free_s = times[i].end_s;
  }
}

double overlap(const Plan& plan, std::span<const OpTime> times, StreamKind a, StreamKind b) {
  const auto next_of = [&](StreamKind stream, size_t from) {
    while (from < plan.ops.size() && plan.ops[from].stream != stream) ++from;
    return from;
  };
  double seconds = 0;
  size_t i = next_of(a, 0), j = next_of(b, 0);
  while (i < plan.ops.size() && j < plan.ops.size()) {
    const double start = std::max(times[i].start_s, times[j].start_s);
    const double end = std::min(times[i].end_s, times[j].end_s);
    seconds += std::max(0.0, end - start);
    if (times[i].end_s < times[j].end_s) {
      i = next_of(a, i + 1);
    } else {
      j = next_of(b, j + 1);
    }
  }
  return seconds;
}

std::vector<Stall> compute_stalls(const Plan& plan, std::span<const OpTime> times) {
  std::vector<Stall> stalls;
  double free = 0;
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (op.stream != StreamKind::Compute) continue;
    if (times[i].start_s > free) {
      Stall stall{.op = i, .start_s = free, .seconds = times[i].start_s - free};
      double latest = free;
      for (const OpIndex w : plan.waits_of(op)) {
        if (times[w].end_s <= latest) continue;
        latest = times[w].end_s;
        stall.cause = w;
      }
      stalls.push_back(stall);
    }
    free = times[i].end_s;
  }
  return stalls;
}

}  // namespace ebb

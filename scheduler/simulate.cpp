#include "scheduler/simulate.h"

#include <algorithm>
#include <array>

namespace ebb {
namespace {

double time_of(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

/// What Finish reads and writes: every sum of the chunk's parameters, and the gradient.
double finish_bytes(const Layout& layout, uint32_t chunk) {
  const double gradient_bytes = static_cast<double>(size_of(layout.gradient_type()));
  double bytes = 0;
  for (const Segment& segment : layout.segments(chunk)) {
    const double sums = 4.0 * layout.parameter(segment.parameter).num_uses;
    bytes += (sums + gradient_bytes) * static_cast<double>(segment.num_elements);
  }
  return bytes;
}

double duration_s(const Op& op, const Trace& trace, const Layout& layout, const Machine& machine) {
  switch (op.kind) {
    case OpKind::Run: {
      const Cost& cost = trace.moments[op.moment].cost;
      return std::max(time_of(cost.flops, machine.flops_per_s),
                      time_of(cost.bytes, machine.device_bytes_per_s));
    }
    case OpKind::Finish:
      return time_of(finish_bytes(layout, op.chunk.index), machine.device_bytes_per_s);
    case OpKind::Update:
      return time_of(static_cast<double>(layout.chunk_elements(op.chunk.index)) *
                         update_bytes_per_parameter(layout.gradient_type()),
                     machine.update_bytes_per_s);
    case OpKind::Move:
      if (op.from == Tier::None) return 0;
      return time_of(static_cast<double>(layout.used_bytes(op.chunk)),
                     op.lane == Lane::Load ? machine.load_bytes_per_s : machine.store_bytes_per_s);
    case OpKind::Norm:
    case OpKind::Drop:
      break;
  }
  return 0;
}

bool is_copy(const Op& op) { return op.kind == OpKind::Move && op.from != Tier::None; }

/// The two parts of a clipped step.
enum Part { kFirstForward, kRest };
struct PartTimes {
  double compute_s = 0, load_s = 0, store_s = 0;
  double copied_bytes = 0;
};

/// In which part each operation of the plan falls: for a load, that of the first moment that waits
/// for it.
std::vector<Part> parts_of(const Plan& plan, const Trace& trace) {
  std::vector<Part> parts(plan.ops.size(), kFirstForward);
  std::vector<bool> awaited(plan.ops.size(), false);
  Part now = kFirstForward;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    const bool goes_back =
        op.kind == OpKind::Run && trace.moments[op.moment].phase == Phase::Backward;
    if (goes_back) now = kRest;
    parts[i] = now;
    if (op.lane == Lane::Store) {
      parts[i] = kFirstForward;
      for (uint32_t w : plan.waits_of(op)) parts[i] = std::max(parts[i], parts[w]);
    }
    if (op.lane != Lane::Compute) continue;
    for (uint32_t w : plan.waits_of(op)) {
      if (!awaited[w]) parts[w] = now;
      awaited[w] = true;
    }
  }
  return parts;
}

struct Named {
  double seconds;
  const char* name;
};
Named longest(std::initializer_list<Named> times) {
  return *std::max_element(times.begin(), times.end(),
                           [](const Named& a, const Named& b) { return a.seconds < b.seconds; });
}

/// On shared cores the copies stand in the optimizer's way,
double update_on_cores(double update_s, double copied_bytes, const Machine& machine) {
  if (!machine.shared_cores) return update_s;
  return update_s + time_of(copied_bytes, machine.copy_bytes_per_s);
}

/// and both in compute's, unless that only pretends.
double on_cores(double compute_s, double update_s, double copied_bytes, const Machine& machine) {
  if (!machine.shared_cores || machine.pretended_kernels) return compute_s;
  return compute_s + update_on_cores(update_s, copied_bytes, machine);
}

Named clipped_bound(const std::array<PartTimes, 2>& parts, double update_s, double held_s,
                    const Machine& machine) {
  const PartTimes& first = parts[kFirstForward];
  const PartTimes& rest = parts[kRest];
  const Named forward =
      longest({{on_cores(first.compute_s, update_s, 0, machine), "compute, forward"},
               {first.load_s, "load, forward"},
               {update_on_cores(update_s, first.copied_bytes, machine), "update, forward"}});
  const Named backward = longest({{rest.compute_s, "compute, backward"},
                                  {rest.load_s - held_s, "load, backward"},
                                  {rest.store_s, "store, backward"}});
  const Named both{forward.seconds + backward.seconds,
                   forward.seconds > backward.seconds ? forward.name : backward.name};
  return longest({both, {first.load_s + rest.load_s, "load"}});
}

}  // namespace

double update_bytes_per_parameter(DType gradient_type) {
  // Master, momentum and variance are read and written, the gradient is read. The weight is the
  // master, or half of it.
  return 12 + 12 + static_cast<double>(size_of(gradient_type));
}

Bound lower_bound(const Trace& trace, const Layout& layout, const Plan& plan,
                  const Machine& machine, bool clipped) {
  const std::vector<Part> parts = parts_of(plan, trace);
  std::array<PartTimes, 2> times;
  Bound bound;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const double seconds = duration_s(plan.ops[i], trace, layout, machine);
    PartTimes& part = times[parts[i]];
    if (is_copy(plan.ops[i])) {
      part.copied_bytes += static_cast<double>(layout.used_bytes(plan.ops[i].chunk));
    }
    switch (plan.ops[i].lane) {
      case Lane::Compute:
        part.compute_s += seconds;
        break;
      case Lane::Load:
        part.load_s += seconds;
        break;
      case Lane::Store:
        part.store_s += seconds;
        break;
      case Lane::Update:
        bound.update_s += seconds;
        break;
    }
  }
  bound.compute_s = times[0].compute_s + times[1].compute_s;
  bound.load_s = times[0].load_s + times[1].load_s;
  bound.store_s = times[0].store_s + times[1].store_s;
  const double copied_bytes = static_cast<double>(plan.loaded_bytes + plan.stored_bytes);
  Named least =
      longest({{on_cores(bound.compute_s, bound.update_s, copied_bytes, machine), "compute"},
               {bound.load_s, "load"},
               {bound.store_s, "store"},
               {update_on_cores(bound.update_s, copied_bytes, machine), "update"}});
  if (clipped) {
    const double held_bytes =
        static_cast<double>(plan.num_blocks) * static_cast<double>(layout.chunk_bytes());
    const Named two = clipped_bound(times, bound.update_s,
                                    time_of(held_bytes, machine.load_bytes_per_s), machine);
    if (two.seconds >= least.seconds) least = two;
  }
  bound.seconds = least.seconds;
  bound.bound_by = least.name;
  return bound;
}

Simulation simulate(const Plan& plan, const Trace& trace, const Layout& layout,
                    const Machine& machine) {
  Simulation result;
  result.ops.resize(plan.ops.size());
  double free_s[kNumLanes] = {};
  double mover_s = 0;
  bool computed = false;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    const int lane = static_cast<int>(op.lane);
    double start_s = op.lane == Lane::Load ? mover_s : free_s[lane];
    for (uint32_t w : plan.waits_of(op)) start_s = std::max(start_s, result.ops[w].end_s);
    if (op.lane == Lane::Load) mover_s = start_s;
    if (is_copy(op)) start_s = std::max(start_s, free_s[lane]);
    const double seconds = duration_s(op, trace, layout, machine);
    result.ops[i] = {start_s, start_s + seconds};
    result.lane_busy_s[lane] += seconds;
    result.seconds = std::max(result.seconds, start_s + seconds);
    if (op.lane == Lane::Compute && computed) result.stall_s += start_s - free_s[lane];
    computed |= op.lane == Lane::Compute;
    if (op.lane != Lane::Load || is_copy(op)) free_s[lane] = start_s + seconds;
  }
  return result;
}

}  // namespace ebb

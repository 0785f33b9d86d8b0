#include <algorithm>
#include <array>
#include <initializer_list>
#include <vector>

#include "scheduler/plan/op_costs.h"

namespace ebb {
namespace {

/// The two parts of a clipped step: the forward up to the first backward, and the remainder.
enum Part { kFirstForward, kRemainder };
struct PartTimes {
  StreamTimes busy = {};  // without updates, which both parts share
  double copied_bytes = 0;
};

/// The part of each operation of the plan. A load belongs to the part of the first call that waits
/// for it.
std::vector<Part> parts_of(const Plan& plan, const Trace& trace) {
  std::vector<Part> parts(plan.ops.size(), kFirstForward);
  std::vector<bool> awaited(plan.ops.size(), false);
  Part now = kFirstForward;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    const bool goes_back = op.kind == OpKind::Call && trace.calls[op.call].phase == Phase::Backward;
    if (goes_back) now = kRemainder;
    parts[i] = now;
    if (op.stream == StreamKind::Store) {
      parts[i] = kFirstForward;
      for (const OpIndex w : plan.waits_of(op)) parts[i] = std::max(parts[i], parts[w]);
    }
    if (op.stream != StreamKind::Compute) continue;
    for (const OpIndex w : plan.waits_of(op)) {
      if (plan.ops[w].stream != StreamKind::Load) continue;
      if (!awaited[w]) parts[w] = now;
      awaited[w] = true;
    }
  }
  // The load of a part belongs where its gather does. The gathers are in the order of their
  // numbers.
  std::vector<Part> of_split;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    if (is_gather(plan.ops[i]) && plan.ops[i].split != kNone) of_split.push_back(parts[i]);
  }
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    if (is_load_part(plan.ops[i])) parts[i] = of_split.at(plan.ops[i].split);
  }
  return parts;
}

constexpr const char* kNetwork = "network";

struct Named {
  double seconds;
  const char* name;
};
Named longest(std::initializer_list<Named> times) {
  return *std::max_element(times.begin(), times.end(),
                           [](const Named& a, const Named& b) { return a.seconds < b.seconds; });
}

/// Work whose times add, because it shares the cores.
struct Cores {
  bool are_shared = false;
  bool run_kernels = false;
  double copy_bytes_per_s = 0;  // 0: copies use no cores
};
/// A rank may use cores that others leave idle, so only the work of all ranks together adds up.
Cores cores_of_rank(const Machine& machine, size_t num_ranks) {
  if (!machine.shared_cores || num_ranks > 1) return {};
  return {true, !machine.emulate_compute, machine.copy_bytes_per_s};
}

/// Copies on shared cores delay the optimizer.
double update_on_cores(double update_s, double copied_bytes, const Cores& cores) {
  return cores.are_shared ? update_s + time_of(copied_bytes, cores.copy_bytes_per_s) : update_s;
}

/// Copies and the optimizer on shared cores delay compute, unless compute is emulated.
double on_cores(double compute_s, double update_s, double copied_bytes, const Cores& cores) {
  return cores.run_kernels ? compute_s + update_on_cores(update_s, copied_bytes, cores) : compute_s;
}

/// `update_s`: of updates that wait for the norm. `add`: adding groups, before the norm.
Named clipped_bound(const std::array<PartTimes, 2>& parts, double update_s, const Named& add,
                    double early_load_s, const Cores& cores) {
  const PartTimes& first = parts[kFirstForward];
  const PartTimes& remainder = parts[kRemainder];
  const Named forward =
      longest({{on_cores(first.busy[StreamKind::Compute], update_s, 0, cores), "compute, forward"},
               {first.busy[StreamKind::Load], "load, forward"},
               {update_on_cores(update_s, first.copied_bytes, cores), "update, forward"}});
  const Named backward =
      longest({{remainder.busy[StreamKind::Compute], "compute, backward"},
               {remainder.busy[StreamKind::Load] - early_load_s, "load, backward"},
               {remainder.busy[StreamKind::Store], "store, backward"},
               add});
  const Named both{forward.seconds + backward.seconds,
                   forward.seconds > backward.seconds ? forward.name : backward.name};
  return longest({both, {first.busy[StreamKind::Load] + remainder.busy[StreamKind::Load], "load"}});
}

/// The bound of one rank on its part of the machine `whole`, if host memory has no limit and
/// nobody else uses the network.
Bound bound_of_rank(const RankStep& step, const Machine& machine, const Machine& whole,
                    const Cores& cores, bool clipped) {
  const Plan& plan = step.plan;
  const std::vector<Part> parts = parts_of(plan, step.trace);
  std::array<PartTimes, 2> times;
  Bound bound;
  double speculated_s = 0, add_s = 0, receive_s = 0;  // sums from the network, before adding them
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    const double seconds = duration_s(op, step, machine) + network_s(op, step, whole);
    PartTimes& part = times[parts[i]];
    if (is_copy(op) || is_load_part(op)) {
      part.copied_bytes += static_cast<double>(bytes_of_move(op, step.layout, plan.division));
    }
    if (op.stream != StreamKind::Update) {
      part.busy[op.stream] += seconds;
      continue;
    }
    bound.update_s += seconds;
    if (op.kind == OpKind::Speculate) speculated_s += seconds;
    if (op.kind != OpKind::AddGroups && op.kind != OpKind::RoundTotal) continue;
    add_s += seconds;
    receive_s += network_s(op, step, whole);
  }
  const auto both = [&](StreamKind kind) { return times[0].busy[kind] + times[1].busy[kind]; };
  bound.compute_s = both(StreamKind::Compute);
  bound.load_s = both(StreamKind::Load);
  bound.store_s = both(StreamKind::Store);
  const auto copied_bytes = static_cast<double>(plan.copied_bytes());
  Named least =
      longest({{on_cores(bound.compute_s, bound.update_s, copied_bytes, cores),
                info_of(StreamKind::Compute).name},
               {bound.load_s, info_of(StreamKind::Load).name},
               {bound.store_s, info_of(StreamKind::Store).name},
               {update_on_cores(bound.update_s, copied_bytes, cores),
                2 * receive_s > bound.update_s ? kNetwork : info_of(StreamKind::Update).name}});
  // Delayed updates run during the whole step.
  if (clipped && plan.count(&ChunkRecord::is_delayed) == 0) {
    const double early_bytes =
        static_cast<double>(plan.num_blocks) * static_cast<double>(step.layout.chunk_bytes());
    const Named add{add_s, 2 * receive_s > add_s ? "network, backward" : "update, backward"};
    const Named two = clipped_bound(times, bound.update_s - speculated_s - add_s, add,
                                    time_of(early_bytes, machine.load_bytes_per_s), cores);
    if (two.seconds >= least.seconds) least = two;
  }
  bound.seconds = least.seconds;
  bound.bound_by = least.name;
  return bound;
}

/// The time of all operations of the ranks of a machine in something that they share.
using SharedTime = double (&)(const Op& op, const RankStep& step, const Machine& machine);
double sum_of(SharedTime shared_s, std::span<const RankStep> ranks, const Machine& machine) {
  double seconds = 0;
  for (const RankStep& rank : ranks) {
    for (const Op& op : rank.plan.ops) seconds += shared_s(op, rank, machine);
  }
  return seconds;
}

/// The time of all work of the ranks of a machine on its shared cores.
double cores_s(std::span<const RankStep> ranks, std::span<const Bound> bounds,
               const Machine& machine) {
  double work_s = 0, copied_bytes = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    // The rates of a rank are those of its part of the cores.
    const double kernels_s = machine.emulate_compute ? 0 : bounds[i].compute_s;
    work_s += (kernels_s + bounds[i].update_s) / static_cast<double>(ranks.size());
    copied_bytes += static_cast<double>(ranks[i].plan.copied_bytes());
  }
  return work_s + time_of(copied_bytes, machine.copy_bytes_per_s);
}

Bound bound_of(const SimulatedRanks& simulated, bool clipped) {
  const auto& [ranks, machine, per_machine, stand_for_all] = simulated;
  const Machine of_rank = machine_of_rank(machine, static_cast<double>(per_machine));
  const Cores cores = cores_of_rank(machine, per_machine);
  std::vector<Bound> bounds;
  for (const RankStep& rank : ranks) {
    bounds.push_back(bound_of_rank(rank, of_rank, machine, cores, clipped));
  }
  Bound bound = *std::ranges::max_element(bounds, {}, &Bound::seconds);
  double all_cores_s = 0;
  for (size_t first = 0; first < ranks.size(); first += per_machine) {
    const auto of_machine = ranks.subspan(first, per_machine);
    if (machine.host_bytes_per_s > 0) {
      bound.host_memory_s =
          std::max(bound.host_memory_s, sum_of(host_memory_s, of_machine, machine));
    }
    if (machine.network_bytes_per_s > 0) {
      bound.network_s = std::max(bound.network_s, sum_of(network_s, of_machine, machine));
    }
    if (!machine.shared_cores || per_machine == 1) continue;
    const auto its_bounds = std::span(bounds).subspan(first, per_machine);
    all_cores_s = std::max(all_cores_s, cores_s(of_machine, its_bounds, machine));
  }
  const auto no_less_than = [&bound](double seconds, const char* name) {
    if (seconds <= bound.seconds) return;
    bound.seconds = seconds;
    bound.bound_by = name;
  };
  no_less_than(bound.host_memory_s, "host memory");
  no_less_than(bound.network_s, kNetwork);
  no_less_than(all_cores_s, info_of(StreamKind::Compute).name);
  return bound;
}

}  // namespace

Bound lower_bound(std::span<const RankStep> ranks, const Machine& machine, bool clipped) {
  return bound_of(together(ranks, machine), clipped);
}

Bound lower_bound(const Trace& trace, const Layout& layout, const Plan& plan,
                  const Machine& machine, bool clipped) {
  const RankStep step{plan, trace, layout};
  return bound_of({{&step, 1}, machine, 1}, clipped);
}

}  // namespace ebb

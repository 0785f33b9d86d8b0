// What the operations of a plan cost on a machine: seconds at full speed, and bytes of host memory.
// Pure functions, private to the simulation and the bound (simulate.h).
#pragma once

#include "scheduler/plan/simulate.h"

namespace ebb {

/// How many of these ranks are on each machine.
inline size_t ranks_per_machine(std::span<const RankStep> ranks) {
  return ranks.size() == 1 ? 1 : ranks.size() / ranks[0].plan.division.place.num_machines;
}

/// The time in which a rate does this amount; no time without a rate.
inline double time_of(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

/// Does the operation take no time? Clipping is assumed to change nothing: then a speculative
/// update is committed in no time.
bool is_done_before(const Op& op, const Plan& plan);

/// Seconds of an operation at full speed.
double duration_s(const Op& op, const RankStep& step, const Machine& machine);

/// What an operation reads and writes in host memory (docs/memory.md, "Traffic of host memory").
double host_bytes(const Op& op, const RankStep& step);

/// The time in which the host memory moves the bytes of an operation, if nothing else uses it.
double host_memory_s(const Op& op, const RankStep& step, const Machine& machine);

}  // namespace ebb

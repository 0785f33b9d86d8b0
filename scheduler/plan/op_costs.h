// What the operations of a plan cost on a machine: seconds at full speed, and bytes of host memory
// and of the network.
// Pure functions, private to the simulation and the bound (simulate.h).
#pragma once

#include "scheduler/plan/simulate.h"

namespace ebb {

/// The ranks that are simulated, and the machine that those of one machine share.
struct SimulatedRanks {
  std::span<const RankStep> steps;
  Machine machine;
  size_t per_machine;  ///< so many of them are on each machine
  /// The ranks, all on one machine, stand for all ranks of the run: other ranks do the same at the
  /// same time.
  bool stand_for_all = false;
};
/// All ranks of a run, or some of one machine, which have their part of the machine then.
SimulatedRanks together(std::span<const RankStep> ranks, const Machine& machine);

/// The time in which a rate does this amount; no time without a rate.
inline double time_of(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

/// Does the operation take no time? Clipping is assumed to change nothing: then a speculative
/// update is committed in no time.
bool is_done_before(const Op& op, const Plan& plan);

/// Seconds of an operation at full speed, without its time on the network.
double duration_s(const Op& op, const RankStep& step, const Machine& machine);

/// What an operation receives from other machines: weights or running sums that it fetches, or
/// gradient sums that it adds.
double network_bytes(const Op& op, const RankStep& step);

/// The time in which the network brings these bytes, if nothing else uses it.
double network_s(const Op& op, const RankStep& step, const Machine& machine);

/// The time in which a rank copies the running sum of a chunk from the machine before, and adds the
/// groups of its machine. `machine`: the rates of one rank (machine_of_rank()).
double running_sum_s(ChunkIndex chunk, const RankStep& step, const Machine& machine);

/// What an operation reads and writes in host memory (docs/memory.md, "Traffic of host memory").
double host_bytes(const Op& op, const RankStep& step);

/// The time in which the host memory moves the bytes of an operation, if nothing else uses it.
double host_memory_s(const Op& op, const RankStep& step, const Machine& machine);

}  // namespace ebb

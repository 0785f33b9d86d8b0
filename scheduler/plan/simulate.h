// How long a plan takes on a machine, and the shortest time in which the machine can do what the
// plan says. Pure functions.
//
// All ranks of a step can be simulated together: then each has its plan and its streams, and a
// Receive waits for the Sends of other ranks. The rates of a Machine are those of one device, or,
// for the network, the optimizer, host memory and shared cores, those of the whole machine. Each
// rank has an equal part of the threads: its operations are at most as fast as with this part.
//
// Some ranks of one machine can stand for all ranks of the run (simulate_ranks). Then every other
// machine is taken to do the same at the same time with its own chunks (sends.h), and half of
// the machines are taken to fetch from one machine at a time. So the time to simulate does not grow
// with the number of machines. docs/ranks.md compares this with simulations of all ranks.
//
// The network of a machine brings bytes from all other machines together, and sends as many at the
// same time. A fetch uses what its machine receives, and what the machine of the owner sends. If
// ranks of many machines fetch the same chunk, its owner's machine is what they wait for. Adding
// groups receives their sums from all other machines in turn.
//
// The simulation runs the streams of a plan against a virtual clock. An operation starts when
// its stream is free and the operations that it waits for are done. On the load stream the copy
// thread waits for one operation after the other, and the link copies in order; allocating and
// dropping take no time, nor does the norm. Where cores are shared, copies take their part of the
// cores first, and kernels and the optimizer share the remainder equally while both have work. On
// shared cores the time of a kernel is its arithmetic plus its memory traffic; on a device it is
// the longer of the two. All that reads or writes host memory is slowed down by the same factor
// while it would use more than the host memory can move. Clipping is assumed to change nothing: the
// commit of a speculative update takes no time.
//
// Times are seconds, rates are bytes or flops per second; a rate of 0 means no limit. But in a
// machine file (tools/planned_machine.h) no peer_bytes_per_s means that devices cannot read each
// other's memory, and no network_bytes_per_s that no network is known.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "chunk/layout.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/timeline.h"
#include "scheduler/plan/trace.h"

namespace ebb {

struct Machine {
  double flops_per_s = 0;                     ///< of matrix products
  double narrow_flops_per_s = 0;              ///< of narrow products (kNarrow); 0: flops_per_s
  double attention_flops_per_s = 0;           ///< 0: flops_per_s
  double attention_backward_flops_per_s = 0;  ///< 0: attention_flops_per_s
  double vector_flops_per_s = 0;              ///< of norms, activations, the loss; 0: flops_per_s
  double kernel_s = 0;                        ///< to start and end a kernel, added for each kernel
  double device_bytes_per_s = 0;              ///< device memory
  double load_bytes_per_s = 0;                ///< host to device
  double store_bytes_per_s = 0;
  double peer_bytes_per_s = 0;  ///< from the memory of other devices, and to all of them together
  double network_bytes_per_s = 0;  ///< from all other machines, and as much to them
  double message_s = 0;            ///< until a message is on another machine
  double update_bytes_per_s = 0;   ///< host memory, for the optimizer
  /// Host memory, for everything together. Not used with shared cores, whose rates include it.
  double host_bytes_per_s = 0;
  bool shared_cores = false;     ///< kernels, copies and the optimizer use the same cores
  bool emulate_compute = false;  ///< with shared cores: kernels sleep and use no core
  double copy_bytes_per_s =
      0;  ///< with shared cores: the rate at which all cores together copy; 0: copies use no core
};

/// What one of `num_ranks` ranks has of the machine while all of them are busy. With a fraction:
/// the machine of which `machine` is a part.
Machine machine_of_rank(const Machine& machine, double num_ranks);

/// The step of one rank.
struct RankStep {
  const Plan& plan;
  const Trace& trace;
  const Layout& layout;
};

/// A stream, and what its operations cost.
struct StreamInfo {
  StreamKind kind;
  const char* name;  ///< in traces and reports
  /// The rate at which its operations copy, or read and write. Sums that are shared or added on the
  /// device, and bytes of the network, have rates of their own (op_costs.h). Null: it has no other
  /// bytes.
  double Machine::*bytes_per_s = nullptr;
  /// To start and end an operation that reads or writes; a call has it once for each kernel. Null
  /// if it takes no time.
  double Machine::*start_s = nullptr;
};
/// All streams, by kind.
inline constexpr StreamInfo kStreams[] = {
    {StreamKind::Compute, "compute", &Machine::device_bytes_per_s, &Machine::kernel_s},
    {StreamKind::Load, "load", &Machine::load_bytes_per_s},
    {StreamKind::Store, "store", &Machine::store_bytes_per_s},
    {StreamKind::Update, "update", &Machine::update_bytes_per_s},
    {StreamKind::Send, "send"},
    {StreamKind::Receive, "receive"},
    {StreamKind::Fetch, "fetch"},
    {StreamKind::Parts, "parts"},
};
static_assert(std::size(kStreams) == kNumStreamKinds);
static_assert([] {
  for (size_t i = 0; i < kNumStreamKinds; ++i) {
    if (static_cast<size_t>(kStreams[i].kind) != i) return false;
  }
  return true;
}());
constexpr const StreamInfo& info_of(StreamKind kind) { return kStreams[static_cast<size_t>(kind)]; }

/// Seconds for each stream.
struct StreamTimes {
  std::array<double, kNumStreamKinds> seconds = {};
  double& operator[](StreamKind kind) { return seconds[static_cast<size_t>(kind)]; }
  double operator[](StreamKind kind) const { return seconds[static_cast<size_t>(kind)]; }
};

/// The shortest time in which a step can move the plan's bytes (docs/memory.md, "Time"): the
/// maximum over what can overlap, the sum over what cannot. A clipped step has two parts: the
/// forward, which the update may overlap, and the backward up to the norm. Loads of the second part
/// may come early, as far as the blocks can hold them.
struct Bound {
  double seconds = 0;
  /// The name of a stream ("load"), or "host memory" or "network". If the bound is the sum of the
  /// two parts of a clipped step, also the longer part ("load, forward").
  const char* bound_by = "compute";
  double compute_s = 0, load_s = 0, store_s = 0, update_s = 0;
  double host_memory_s = 0;  ///< of all ranks of a machine together
  double network_s = 0;      ///< of all ranks of a machine together: what it receives
};
/// Of all ranks: the greatest bound of a rank, or the time in which the host memory, the network or
/// the shared cores of a machine can do the work of all of its ranks. The times of streams are
/// those of the rank with the greatest bound. REQUIRES: as simulate_ranks().
Bound lower_bound(std::span<const RankStep> ranks, const Machine& machine, bool clipped);
/// Of one rank that has the machine for itself.
Bound lower_bound(const Trace& trace, const Layout& layout, const Plan& plan,
                  const Machine& machine, bool clipped);

/// The rate at which a device copies from the others of its machine. If it is not known, four times
/// that of the link is assumed, about half of what the data sheets of A100 and H100 say (300 GB/s
/// of NVLink beside 32 GB/s of PCIe 4, and 450 beside 64). Bridges between two GPUs may have less.
/// The rate matters only if the driver says that devices can read each other's memory.
double peer_rate(const Machine& machine);

/// The time of a call, at full speed.
double seconds_of(const Cost& cost, const Machine& machine);

struct Simulation {
  double seconds = 0;
  StreamTimes stream_busy = {};  ///< the sums of the times of its operations at full speed
  double stall_s = 0;  ///< idle time of the compute stream between its first and last operation
  std::vector<OpTime> ops;  ///< one for each operation
};
/// All ranks, in their order, on equal machines; the step takes as long as the slowest one. Or
/// n consecutive ranks of one machine, which stand for all; n divides the number of ranks of the
/// machine, and the number of the first rank is a multiple of n.
/// REQUIRES: the plans are valid and fit together (validate.h, validation_ranks.h). All that the
/// step before left is there when they begin.
std::vector<Simulation> simulate_ranks(std::span<const RankStep> ranks, const Machine& machine);
/// One rank that has the machine for itself and never waits for another one. With several machines,
/// the ranks of the others fetch the same chunks at the same time.
Simulation simulate(const Plan& plan, const Trace& trace, const Layout& layout,
                    const Machine& machine);

}  // namespace ebb

#include "scheduler/plan/op_costs.h"

#include <algorithm>

#include "device/planes.h"
#include "scheduler/plan/running_sums.h"

namespace ebb {

/// A GPU overlaps the arithmetic and the memory traffic of a kernel, so the longer time counts. The
/// cores of a host hardly do: the times add.
double seconds_of(const Cost& cost, const Machine& machine) {
  const auto or_products = [&](double rate) { return rate > 0 ? rate : machine.flops_per_s; };
  // Without a rate of its own, a part counts as the whole that it belongs to.
  const double narrow = machine.narrow_flops_per_s > 0 ? cost.narrow_flops : 0;
  const double backward =
      machine.attention_backward_flops_per_s > 0 ? cost.attention_backward_flops : 0;
  const double products = cost.flops - cost.attention_flops - cost.vector_flops - narrow;
  const double arithmetic_s =
      time_of(products, machine.flops_per_s) + time_of(narrow, machine.narrow_flops_per_s) +
      time_of(cost.attention_flops - backward, or_products(machine.attention_flops_per_s)) +
      time_of(backward, machine.attention_backward_flops_per_s) +
      time_of(cost.vector_flops, or_products(machine.vector_flops_per_s));
  const double memory_s = time_of(cost.bytes, machine.device_bytes_per_s);
  const bool on_cores = machine.shared_cores && !machine.emulate_compute;
  return (on_cores ? arithmetic_s + memory_s : std::max(arithmetic_s, memory_s)) +
         cost.num_kernels * machine.kernel_s;
}

double peer_rate(const Machine& machine) {
  return machine.peer_bytes_per_s > 0 ? machine.peer_bytes_per_s : 4 * machine.load_bytes_per_s;
}

namespace {

/// `each` bytes for each gradient sum of the chunk's parameters, and `more` for each element.
double sum_bytes(const Layout& layout, ChunkIndex chunk, double each, double more = 0) {
  double bytes = 0;
  for (const Segment& segment : layout.segments(chunk)) {
    const double sums = each * layout.parameter(segment.parameter).num_uses;
    bytes += (sums + more) * static_cast<double>(segment.num_elements);
  }
  return bytes;
}

double gradient_bytes(const Layout& layout, ChunkIndex chunk) {
  return sum_bytes(layout, chunk, 0, static_cast<double>(size_of(layout.gradient_type())));
}

/// The stored sums of the chunk's parameters in `num_groups` groups.
double stored_sum_bytes(const RankStep& step, uint32_t num_groups, ChunkIndex chunk) {
  const DType type = step.plan.division.sum_type;
  return sum_bytes(step.layout, chunk, static_cast<double>(num_groups * size_of(type)));
}

const ChunkRecord& record_of(const Op& op, const RankStep& step) {
  return step.plan.chunks[op.chunk.index];
}

double running_bytes(const Layout& layout, ChunkIndex chunk) {
  return static_cast<double>(layout.running_sum_bytes(chunk));
}

/// The groups of this machine and the running sum are read, and the running sum is written.
double chained_bytes(const RankStep& step, ChunkIndex chunk) {
  const Division& division = step.plan.division;
  return stored_sum_bytes(step, groups_of_machine(division).count, chunk) +
         running_bytes(step.layout, chunk) * (is_first_machine(division.place) ? 1 : 2);
}

/// The time in which a device adds the sums of all groups: it reads those of other ranks in the
/// memory of their devices, and for each addition it reads the stored sum, and reads and writes an
/// fp32 sum, in its own memory. If the host makes the update, the device then stores the gradient,
/// which the host copies to its buffer. In a chain, it loads and stores a running sum instead,
/// which is taken to be in pinned memory.
double device_add_s(const RankStep& step, ChunkIndex chunk, const Machine& machine) {
  const Division& division = step.plan.division;
  const uint32_t num_own = share_of(division, division.place.rank).groups.count;
  const uint32_t num_groups = groups_of_machine(division).count;
  const double added_bytes = stored_sum_bytes(step, num_groups, chunk) +
                             sum_bytes(step.layout, chunk, 2.0 * sizeof(float) * num_groups);
  const double added_s =
      std::max(time_of(stored_sum_bytes(step, num_groups - num_own, chunk), peer_rate(machine)),
               time_of(added_bytes, machine.device_bytes_per_s));
  if (step.plan.chunks[chunk].is_on_owner()) return added_s;
  if (division.chains_sums) {
    const double running = running_bytes(step.layout, chunk);
    const double before = is_first_machine(division.place) ? 0 : running;
    return added_s + time_of(before, machine.load_bytes_per_s) +
           time_of(running, machine.store_bytes_per_s);
  }
  const double stored_bytes = gradient_bytes(step.layout, chunk);
  return added_s + time_of(stored_bytes, machine.store_bytes_per_s) +
         time_of(2 * stored_bytes, machine.update_bytes_per_s);
}

/// The time in which the device of the owner updates the chunk. On shared cores it is as fast as
/// the host.
double owner_update_s(double bytes, const Machine& machine) {
  return time_of(bytes,
                 machine.shared_cores ? machine.update_bytes_per_s : machine.device_bytes_per_s);
}

/// The time in which weights are copied from the device of their owner. All ranks need a chunk at
/// about the same time, so its owner sends it to all others at once.
double gather_s(double bytes, const RankStep& step, const Machine& machine, bool is_mine) {
  if (is_mine) return time_of(2 * bytes, machine.device_bytes_per_s);
  return time_of(bytes * (step.plan.division.place.num_ranks - 1), peer_rate(machine));
}

/// The time in which weights are copied from the devices of all ranks of this machine: their parts
/// of a split load; or if only the owner has them, this rank's part, while the others copy theirs.
/// Then the owner sends as much as a rank receives in a gather.
double exchange_s(double bytes, const RankStep& step, const Machine& machine) {
  const double num_ranks = step.plan.division.place.ranks_per_machine();
  return time_of(bytes * (num_ranks - 1) / num_ranks, peer_rate(machine));
}

double load_part_s(const Op& op, const RankStep& step, const Machine& machine) {
  const auto bytes = static_cast<double>(bytes_of_move(op, step.layout, step.plan.division));
  if (op.from == Tier::Host) return time_of(bytes, machine.load_bytes_per_s);
  if (step.plan.chunks[op.chunk.index].is_mine) {
    return time_of(2 * bytes, machine.device_bytes_per_s);
  }
  return exchange_s(static_cast<double>(step.layout.used_bytes(op.chunk)), step, machine);
}

/// A byte from another machine is written to the buffer of the link, and copied from there; and
/// because all machines are alike, another machine reads such a byte here.
constexpr double kHostBytesOfNetworkByte = 4;

/// Bytes of the undo log for each parameter, with outliers (docs/undo.md).
constexpr double kLogBytes = 1.15;

/// What an operation other than a call copies, or reads and writes. 0: it takes no time.
double moved_bytes(const Op& op, const RankStep& step) {
  const Layout& layout = step.layout;
  switch (op.kind) {
    case OpKind::Round:
      return sum_bytes(layout, ChunkIndex(op.chunk.index), sizeof(float)) +
             gradient_bytes(layout, ChunkIndex(op.chunk.index));
    case OpKind::AddGroups:
      if (step.plan.division.chains_sums) return chained_bytes(step, ChunkIndex(op.chunk.index));
      return stored_sum_bytes(step, step.plan.division.num_groups, ChunkIndex(op.chunk.index)) +
             gradient_bytes(layout, ChunkIndex(op.chunk.index));
    case OpKind::FetchSum:
      return running_bytes(layout, ChunkIndex(op.chunk.index));
    case OpKind::RoundTotal:
      return running_bytes(layout, ChunkIndex(op.chunk.index)) +
             gradient_bytes(layout, ChunkIndex(op.chunk.index));
    case OpKind::Speculate:
    case OpKind::Update: {
      const double log_bytes = op.kind == OpKind::Speculate ? kLogBytes : 0;
      return static_cast<double>(layout.chunk_elements(ChunkIndex(op.chunk.index))) *
             (update_bytes_per_parameter(layout.weight_type(), layout.gradient_type()) + log_bytes);
    }
    case OpKind::Move:
      if (op.from == Tier::None) return 0;
      return static_cast<double>(bytes_of_move(op, layout, step.plan.division));
    case OpKind::Call:
    case OpKind::StorePartialNorms:
    case OpKind::Norm:
    case OpKind::Send:
    case OpKind::Receive:
    case OpKind::Drop:
      break;
  }
  return 0;
}

}  // namespace

bool is_done_before(const Op& op, const Plan& plan) {
  return op.kind == OpKind::Update && op.deferred && plan.chunks[op.chunk.index].is_speculative();
}

double duration_s(const Op& op, const RankStep& step, const Machine& machine) {
  if (is_done_before(op, step.plan)) return 0;
  if (op.kind == OpKind::AddGroups && step.plan.division.sums_on_devices) {
    return device_add_s(step, ChunkIndex(op.chunk.index), machine);
  }
  if (is_share(op)) {
    const auto read_bytes = static_cast<double>(step.layout.used_bytes(op.chunk));
    return time_of(read_bytes + moved_bytes(op, step), machine.device_bytes_per_s);
  }
  if (op.kind == OpKind::Call) return seconds_of(step.trace.calls[op.call].cost, machine);
  const double bytes = moved_bytes(op, step);
  if (bytes == 0) return 0;
  if (is_load_part(op)) return load_part_s(op, step, machine);
  if (is_gather(op) && op.split != kNone) return exchange_s(bytes, step, machine);
  if (is_gather(op)) return gather_s(bytes, step, machine, record_of(op, step).is_mine);
  if (op.kind == OpKind::Update && record_of(op, step).is_on_owner()) {
    return owner_update_s(bytes, machine);
  }
  const StreamInfo& stream = info_of(op.stream);
  if (stream.bytes_per_s == nullptr) return 0;
  const double start_s = stream.start_s != nullptr ? machine.*stream.start_s : 0;
  return time_of(bytes, machine.*stream.bytes_per_s) + start_s;
}

double host_bytes(const Op& op, const RankStep& step) {
  if (is_share(op) || is_gather(op) || (is_load_part(op) && op.from == Tier::Peer)) return 0;
  const bool ends_gradient = op.kind == OpKind::AddGroups || op.kind == OpKind::Update;
  if (ends_gradient && record_of(op, step).is_on_owner()) return 0;
  if (op.kind == OpKind::AddGroups && step.plan.division.sums_on_devices) {
    const Division& division = step.plan.division;
    const ChunkIndex chunk(op.chunk.index);
    // A gradient passes through another buffer.
    if (!division.chains_sums) return 3 * gradient_bytes(step.layout, chunk);
    return (is_first_machine(division.place) ? 1 : 2) * running_bytes(step.layout, chunk);
  }
  const double of_network = kHostBytesOfNetworkByte * network_bytes(op, step);
  const bool uses_host = op.stream == StreamKind::Load || op.stream == StreamKind::Store ||
                         op.stream == StreamKind::Update;
  return (uses_host && !is_done_before(op, step.plan) ? moved_bytes(op, step) : 0) + of_network;
}

double network_bytes(const Op& op, const RankStep& step) {
  if (is_fetch(op) || op.kind == OpKind::FetchSum) return moved_bytes(op, step);
  if (op.kind != OpKind::AddGroups) return 0;
  return stored_sum_bytes(step, num_far_groups(step.plan.division), ChunkIndex(op.chunk.index));
}

double network_s(const Op& op, const RankStep& step, const Machine& machine) {
  return time_of(network_bytes(op, step), machine.network_bytes_per_s);
}

double running_sum_s(ChunkIndex chunk, const RankStep& step, const Machine& machine) {
  const ChunkId id{Space::Weights, chunk};
  const Op fetch{.kind = OpKind::FetchSum, .stream = StreamKind::Fetch, .chunk = id};
  const Op add{.kind = OpKind::AddGroups, .stream = StreamKind::Update, .chunk = id};
  return network_s(fetch, step, machine) + duration_s(add, step, machine);
}

SimulatedRanks together(std::span<const RankStep> ranks, const Machine& machine) {
  const RankPlace& place = ranks[0].plan.division.place;
  if (ranks.size() >= place.num_ranks) {
    return {ranks, machine, ranks.size() == 1 ? 1 : ranks.size() / place.num_machines};
  }
  const double parts = static_cast<double>(place.ranks_per_machine()) / ranks.size();
  return {ranks, machine_of_rank(machine, parts), ranks.size(), true};
}

double host_memory_s(const Op& op, const RankStep& step, const Machine& machine) {
  // The rates of shared cores were measured with what they do in host memory.
  return machine.shared_cores ? 0 : time_of(host_bytes(op, step), machine.host_bytes_per_s);
}

}  // namespace ebb

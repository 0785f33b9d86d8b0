#include "scheduler/plan/simulate.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "device/errors.h"
#include "scheduler/plan/op_costs.h"
#include "scheduler/plan/sends.h"

namespace ebb {
namespace {

std::vector<const Plan*> plans_of(std::span<const RankStep> ranks) {
  std::vector<const Plan*> plans;
  for (const RankStep& rank : ranks) plans.push_back(&rank.plan);
  return plans;
}

/// Runs the streams of all ranks against a clock that jumps from one end of an operation to the
/// next.
class Clockwork {
 public:
  /// `waits`: Receives wait for messages.
  Clockwork(const SimulatedRanks& simulated, bool waits)
      : machine_(simulated.machine),
        per_machine_(simulated.per_machine),
        stand_for_all_(simulated.stand_for_all),
        of_rank_(machine_of_rank(machine_, static_cast<double>(per_machine_))),
        waits_(waits),
        sends_(waits ? plans_of(simulated.steps) : std::vector<const Plan*>()),
        sent_(simulated.steps[0].plan.division.place.num_machines) {
    ranks_.reserve(simulated.steps.size());
    for (const RankStep& step : simulated.steps) {
      Rank& rank = ranks_.emplace_back(Rank{.step = step});
      const std::vector<Op>& ops = step.plan.ops;
      rank.done.resize(ops.size(), false);
      rank.result.ops.resize(ops.size());
      for (OpIndex i{0}; i < ops.size(); ++i) {
        rank.streams[static_cast<int>(ops[i].stream)].push_back(i);
      }
    }
  }

  std::vector<Simulation> run() {
    for (;;) {
      start_all();
      if (network_changes_) share_network();
      for (size_t first = 0; first < ranks_.size(); first += per_machine_) {
        share_machine(of_machine(first));
      }
      double next_s = kNever;
      for (const Rank& rank : ranks_) {
        for (const Work& work : rank.works) next_s = std::min(next_s, work.end_s);
      }
      if (next_s == kNever) break;
      now_s_ = next_s;
      for (Rank& rank : ranks_) {
        for (Work& work : rank.works) {
          if (work.end_s <= now_s_) end(rank, work);
        }
      }
    }
    std::vector<Simulation> results;
    for (Rank& rank : ranks_) {
      EBB_CHECK(rank.num_done == rank.done.size(), "a plan waits for what never ends");
      results.push_back(std::move(rank.result));
    }
    return results;
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  /// What a stream does now.
  struct Work {
    OpIndex op = kNone;
    double left_s = 0;  ///< remaining time at full speed, as of `since_s`
    double since_s = 0;
    double speed = 1;    ///< share of the full speed
    double shared = 0;   ///< at full speed: the share of the cores (copies), or of the host memory
    double network = 0;  ///< the part of its time that it needs the network
    double on_network = 1;  ///< share of the full speed that the network allows
    double end_s = kNever;
  };
  /// What a stream starts next: its position, and how many of its waits are over.
  struct Cursor {
    uint32_t at = 0;
    uint32_t num_over = 0;
  };
  struct Rank {
    RankStep step;
    std::array<Work, kNumStreamKinds> works = {};
    std::array<std::vector<OpIndex>, kNumStreamKinds> streams = {};  // in order
    std::array<Cursor, kNumStreamKinds> cursors = {};  // for the load stream: of the copy thread
    uint32_t next_load = 0;  // position in the load stream: the next copy of the link
    std::vector<uint8_t> done = {};
    size_t num_done = 0;
    bool may_start = true;  // an operation has ended that one of this rank may wait for
    bool computed = false;
    double last_computed_s = 0;
    Simulation result = {};

    const Op& op(OpIndex index) const { return step.plan.ops[index]; }
  };

  /// The operation that may start on a stream now, or kNone.
  OpIndex find_ready(Rank& rank, StreamKind stream) const {
    const std::vector<OpIndex>& ops = rank.streams[static_cast<int>(stream)];
    Cursor& cursor = rank.cursors[static_cast<int>(stream)];
    if (cursor.at == ops.size()) return kNone;
    const Op& op = rank.op(ops[cursor.at]);
    const auto waits = rank.step.plan.waits_of(op);
    while (cursor.num_over < waits.size() && rank.done[waits[cursor.num_over]]) ++cursor.num_over;
    return cursor.num_over == waits.size() && is_there(rank, op) ? ops[cursor.at] : kNone;
  }
  static void move_on(Rank& rank, StreamKind stream) {
    Cursor& cursor = rank.cursors[static_cast<int>(stream)];
    cursor = {cursor.at + 1};
  }

  /// Is this no Receive, or have the other ranks sent its message?
  bool is_there(const Rank& receiver, const Op& op) const {
    if (op.kind != OpKind::Receive || !waits_) return true;
    return sends_.are_done(op, place_of(receiver), [&](const Sender& sender) {
      return sender.send == kNone || ranks_[sender.place].done[sender.send] != 0;
    });
  }
  uint32_t place_of(const Rank& rank) const { return static_cast<uint32_t>(&rank - ranks_.data()); }

  /// How long the message still takes from other machines. REQUIRES: is_there().
  double message_left_s(const Rank& receiver, const Op& op) const {
    if (op.kind != OpKind::Receive || !waits_) return 0;
    double arrives_s = 0;
    sends_.are_done(op, place_of(receiver), [&](const Sender& sender) {
      const Rank& rank = ranks_[sender.place];
      const bool is_known = sender.send != kNone;
      const double sent_s = is_known ? rank.result.ops[sender.send].end_s : 0;
      const ChunkId chunk = (is_known ? rank.op(sender.send) : op).chunk;
      const double relays_s =
          sender.num_relays > 0 ? sender.num_relays * relay_s(rank.step, chunk) : 0;
      if (sender.is_far) arrives_s = std::max(arrives_s, sent_s + relays_s + machine_.message_s);
      return true;
    });
    return std::max(0.0, arrives_s - now_s_);
  }

  /// How long a rank of another machine takes to pass on the running sum of a chunk.
  double relay_s(const RankStep& step, ChunkId chunk) const {
    return running_sum_s(ChunkIndex(chunk.index), step, of_rank_) + machine_.message_s;
  }

  void start_all() {
    for (bool any = true; any;) {
      any = false;
      for (Rank& rank : ranks_) {
        if (!rank.may_start) continue;
        any = true;
        rank.may_start = false;
        while (start_what_can(rank)) {
        }
      }
    }
  }

  /// Returns true where an operation took no time, so that more may start.
  bool start_what_can(Rank& rank) {
    const size_t num_done = rank.num_done;
    move_chunks(rank);
    start_load(rank);
    for (const StreamInfo& info : kStreams) {
      const StreamKind stream = info.kind;
      if (stream == StreamKind::Load || rank.works[static_cast<int>(stream)].op != kNone) continue;
      const OpIndex op = find_ready(rank, stream);
      if (op == kNone) continue;
      move_on(rank, stream);
      start(rank, op);
    }
    return rank.num_done != num_done;
  }

  /// The copy thread allocates and drops, and submits copies to the link.
  void move_chunks(Rank& rank) {
    for (OpIndex op; (op = find_ready(rank, StreamKind::Load)) != kNone;
         move_on(rank, StreamKind::Load)) {
      if (!takes_no_time(rank.op(op))) continue;
      rank.result.ops[op].start_s = now_s_;
      is_over(rank, op);
    }
  }

  void start_load(Rank& rank) {
    if (rank.works[static_cast<int>(StreamKind::Load)].op != kNone) return;
    const std::vector<OpIndex>& ops = rank.streams[static_cast<int>(StreamKind::Load)];
    const uint32_t end = rank.cursors[static_cast<int>(StreamKind::Load)].at;
    uint32_t& next = rank.next_load;
    while (next < end && takes_no_time(rank.op(ops[next]))) ++next;
    if (next < end) start(rank, ops[next++]);
  }

  void start(Rank& rank, OpIndex index) {
    const Op& op = rank.op(index);
    const int stream = static_cast<int>(op.stream);
    Work& work = rank.works[stream];
    const double on_network_s = network_s(op, rank.step, machine_);
    work = {.op = index,
            .left_s = duration_s(op, rank.step, of_rank_) + on_network_s + message_left_s(rank, op),
            .since_s = now_s_};
    if ((is_copy(op) || is_load_part(op)) && machine_.shared_cores) {
      const size_t bytes = bytes_of_move(op, rank.step.layout, rank.step.plan.division);
      const double on_cores_s = time_of(static_cast<double>(bytes), machine_.copy_bytes_per_s);
      work.left_s = std::max(work.left_s, on_cores_s);
      work.shared = work.left_s > 0 ? on_cores_s / work.left_s : 0;
    }
    if (limits_host_memory()) {
      const double in_memory_s = host_memory_s(op, rank.step, machine_);
      work.left_s = std::max(work.left_s, in_memory_s);
      work.shared = work.left_s > 0 ? in_memory_s / work.left_s : 0;
    }
    if (on_network_s > 0) {
      work.network = on_network_s / work.left_s;
      network_changes_ = true;
    }
    work.end_s = now_s_ + work.left_s;
    rank.result.ops[index].start_s = now_s_;
    rank.result.stream_busy.seconds[stream] += work.left_s;
    if (op.stream == StreamKind::Compute) {
      if (rank.computed) rank.result.stall_s += now_s_ - rank.last_computed_s;
      rank.computed = true;
    }
    if (work.left_s == 0) end(rank, work);
  }

  void end(Rank& rank, Work& work) {
    if (rank.op(work.op).stream == StreamKind::Compute) rank.last_computed_s = now_s_;
    const OpIndex op = work.op;
    network_changes_ = network_changes_ || work.network > 0;
    work = {};
    is_over(rank, op);
  }

  void is_over(Rank& rank, OpIndex op) {
    rank.result.ops[op].end_s = now_s_;
    rank.result.seconds = now_s_;
    rank.done[op] = true;
    ++rank.num_done;
    rank.may_start = true;
    if (rank.op(op).kind != OpKind::Send) return;
    for (Rank& other : ranks_) other.may_start = true;
  }

  std::span<Rank> of_machine(size_t first) {
    return std::span(ranks_).subspan(first, per_machine_);
  }

  /// First a machine divides what it sends among those who ask for it, then what it receives among
  /// its ranks.
  void share_network() {
    const auto num_machines = static_cast<double>(sent_.size());
    // An addition receives the same from each other machine. Where ranks stand for all, so do the
    // additions of the other machines, and a fetch to a slot takes as many times longer as in
    // simulations of all ranks (docs/decisions.md, "One rank stands for a thousand"). A running
    // sum, and weights for all ranks of a machine, are fetched from a machine by one other at a
    // time.
    const double of_addition = stand_for_all_ ? 1 : 1 / (num_machines - 1);
    const double of_fetch = stand_for_all_ ? num_machines / 2 : 1;
    network_changes_ = false;
    std::ranges::fill(sent_, 0);
    for_each_on_network([&](const Rank& rank, const Work& work) {
      if (const auto from = source_of(rank, work)) {
        const Op& op = rank.op(work.op);
        const bool is_to_slot = is_fetch(op) && op.slot != kNone;
        sent_[*from] += work.network * (is_to_slot ? of_fetch : 1);
        return;
      }
      for (uint32_t m = 0; m < sent_.size(); ++m) {
        if (m != machine_of(rank)) sent_[m] += work.network * of_addition;
      }
    });
    for_each_on_network([&](const Rank& rank, Work& work) {
      double slower = 0;
      if (const auto from = source_of(rank, work)) {
        slower = std::max(1.0, sent_[*from]);
      } else {
        for (uint32_t m = 0; m < sent_.size(); ++m) {
          if (m != machine_of(rank)) slower += std::max(1.0, sent_[m]) / (num_machines - 1);
        }
      }
      work.on_network = 1 / slower;
    });
    for (size_t first = 0; first < ranks_.size(); first += per_machine_) share_received(first);
  }
  void share_received(size_t first) {
    double wanted = 0;
    for_each_work(of_machine(first),
                  [&](StreamKind, const Work& work) { wanted += work.network * work.on_network; });
    for_each_work(of_machine(first), [&](StreamKind, Work& work) {
      if (work.network == 0) return;
      work.on_network /= std::max(1.0, wanted);
      set_speed(work, work.on_network);
    });
  }
  /// Calls visit(rank, work) for what uses the network now.
  template <class Visit>
  void for_each_on_network(const Visit& visit) {
    for (Rank& rank : ranks_) {
      for_each_work({&rank, 1}, [&](StreamKind, Work& work) {
        if (work.network > 0) visit(rank, work);
      });
    }
  }
  static uint32_t machine_of(const Rank& rank) {
    const RankPlace& place = rank.step.plan.division.place;
    return place.machine_of(place.rank);
  }
  /// The machine from which a fetch copies; nullopt for an addition.
  static std::optional<uint32_t> source_of(const Rank& rank, const Work& work) {
    const Op& op = rank.op(work.op);
    if (op.stream != StreamKind::Fetch) return std::nullopt;
    return rank.step.plan.division.place.machine_of(op.sender);
  }

  /// What the ranks of one machine do shares its cores or its host memory.
  void share_machine(std::span<Rank> ranks) {
    if (machine_.shared_cores) share_cores(ranks);
    if (limits_host_memory()) share_host_memory(ranks);
  }

  /// Copies get cores first; kernels and the optimizer share the remainder equally. Those of a rank
  /// have no more threads than its part.
  void share_cores(std::span<Rank> ranks) {
    double copies = 0;
    int num_others = 0;
    for_each_work(ranks, [&](StreamKind stream, const Work& work) {
      copies += work.shared;
      num_others += shares(stream);
    });
    const auto num_ranks = static_cast<double>(ranks.size());
    const double left = std::max(0.0, 1 - copies) * num_ranks;
    const double each = num_others > 0 ? std::min(1.0, left / num_others) : 0;
    for_each_work(ranks, [&](StreamKind stream, Work& work) {
      const double of_copy = stream == StreamKind::Compute ? 1 : 1 / std::max(1.0, copies);
      set_speed(work, work.on_network * (shares(stream) ? each : of_copy));
    });
  }

  /// Emulated kernels use no cores.
  bool shares(StreamKind stream) const {
    return stream == StreamKind::Update ||
           (stream == StreamKind::Compute && !machine_.emulate_compute);
  }

  bool limits_host_memory() const {
    return machine_.host_bytes_per_s > 0 && !machine_.shared_cores;
  }

  /// All that uses host memory is slowed down by the same factor.
  void share_host_memory(std::span<Rank> ranks) {
    double wanted = 0;
    for_each_work(ranks,
                  [&](StreamKind, const Work& work) { wanted += work.shared * work.on_network; });
    for_each_work(ranks, [&](StreamKind, Work& work) {
      if (work.shared > 0) set_speed(work, work.on_network / std::max(1.0, wanted));
    });
  }

  /// Visits what the streams of these ranks do now.
  template <class Visit>
  static void for_each_work(std::span<Rank> ranks, const Visit& visit) {
    for (Rank& rank : ranks) {
      for (const StreamInfo& info : kStreams) {
        Work& work = rank.works[static_cast<int>(info.kind)];
        if (work.op != kNone) visit(info.kind, work);
      }
    }
  }

  void set_speed(Work& work, double speed) const {
    if (speed == work.speed) return;
    work.left_s -= (now_s_ - work.since_s) * work.speed;
    work.since_s = now_s_;
    work.speed = speed;
    work.end_s = speed > 0 ? now_s_ + std::max(0.0, work.left_s) / speed : kNever;
  }

  const Machine machine_;
  const size_t per_machine_;
  const bool stand_for_all_;
  const Machine of_rank_;
  const bool waits_;
  const Sends sends_;             // empty if no rank waits
  std::vector<double> sent_;      // [machine] what it is asked to send, in parts of what it can
  bool network_changes_ = false;  // what uses it
  double now_s_ = 0;
  std::vector<Rank> ranks_;
};

}  // namespace

Machine machine_of_rank(const Machine& machine, double num_ranks) {
  Machine part = machine;
  const auto divide = [num_ranks](double& rate) { rate /= num_ranks; };
  divide(part.network_bytes_per_s);
  divide(part.update_bytes_per_s);
  divide(part.host_bytes_per_s);
  if (!machine.shared_cores) return part;
  divide(part.copy_bytes_per_s);
  if (machine.emulate_compute) return part;
  for (double Machine::*rate :
       {&Machine::flops_per_s, &Machine::narrow_flops_per_s, &Machine::attention_flops_per_s,
        &Machine::attention_backward_flops_per_s, &Machine::vector_flops_per_s,
        &Machine::device_bytes_per_s}) {
    divide(part.*rate);
  }
  return part;
}

std::vector<Simulation> simulate_ranks(std::span<const RankStep> ranks, const Machine& machine) {
  return Clockwork(together(ranks, machine), true).run();
}

Simulation simulate(const Plan& plan, const Trace& trace, const Layout& layout,
                    const Machine& machine) {
  const RankStep step{plan, trace, layout};
  const bool has_others = plan.division.place.num_machines > 1;
  return std::move(Clockwork({{&step, 1}, machine, 1, has_others}, false).run()[0]);
}

}  // namespace ebb

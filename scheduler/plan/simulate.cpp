#include "scheduler/plan/simulate.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "device/errors.h"
#include "device/planes.h"

namespace ebb {
namespace {

double time_of(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

}  // namespace

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

namespace {

/// What rounding reads and writes: every sum of the chunk's parameters in `num_groups` groups, and
/// the gradient.
double round_bytes(const Layout& layout, uint32_t num_groups, ChunkIndex chunk) {
  const double gradient_bytes = static_cast<double>(size_of(layout.gradient_type()));
  double bytes = 0;
  for (const Segment& segment : layout.segments(chunk)) {
    const double sums = 4.0 * num_groups * layout.parameter(segment.parameter).num_uses;
    bytes += (sums + gradient_bytes) * static_cast<double>(segment.num_elements);
  }
  return bytes;
}

/// Bytes of the undo log for each parameter, with outliers (docs/undo.md).
constexpr double kLogBytes = 1.15;

/// Assumes that clipping changes nothing: then a speculative update is committed in no time.
bool is_done(const Op& op, const Plan& plan) {
  return op.kind == OpKind::Update && op.deferred && plan.chunks[op.chunk.index].is_speculative();
}

/// The time of an operation that only moves bytes.
double seconds_of(const Op& op, double bytes, const Machine& machine) {
  const StreamInfo& stream = info_of(op.stream);
  const double start_s = stream.start_s != nullptr ? machine.*stream.start_s : 0;
  return time_of(bytes, machine.*stream.bytes_per_s) + start_s;
}

double duration_s(const Op& op, const Plan& plan, const Trace& trace, const Layout& layout,
                  const Machine& machine) {
  switch (op.kind) {
    case OpKind::Call: {
      return seconds_of(trace.calls[op.call].cost, machine);
    }
    case OpKind::Round:
      return seconds_of(op, round_bytes(layout, 1, ChunkIndex(op.chunk.index)), machine);
    case OpKind::Speculate:
    case OpKind::Update: {
      const double log_bytes = op.kind == OpKind::Speculate ? kLogBytes : 0;
      const double bytes =
          static_cast<double>(layout.chunk_elements(ChunkIndex(op.chunk.index))) *
          (update_bytes_per_parameter(layout.weight_type(), layout.gradient_type()) + log_bytes);
      return seconds_of(op, bytes, machine);
    }
    case OpKind::AddGroups: {
      const ChunkIndex chunk(op.chunk.index);
      return seconds_of(op, round_bytes(layout, plan.division.num_groups, chunk), machine);
    }
    case OpKind::Move:
      if (op.from == Tier::None) return 0;
      return seconds_of(op, static_cast<double>(layout.used_bytes(op.chunk)), machine);
    case OpKind::StorePartialNorms:
    case OpKind::Norm:
    case OpKind::Send:
    case OpKind::Receive:
    case OpKind::Drop:
      break;
  }
  return 0;
}

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

/// Copies on shared cores delay the optimizer.
double update_on_cores(double update_s, double copied_bytes, const Machine& machine) {
  if (!machine.shared_cores) return update_s;
  return update_s + time_of(copied_bytes, machine.copy_bytes_per_s);
}

/// Copies and the optimizer on shared cores delay compute, unless compute is emulated.
double on_cores(double compute_s, double update_s, double copied_bytes, const Machine& machine) {
  if (!machine.shared_cores || machine.emulate_compute) return compute_s;
  return compute_s + update_on_cores(update_s, copied_bytes, machine);
}

Named clipped_bound(const std::array<PartTimes, 2>& parts, double update_s, double early_load_s,
                    const Machine& machine) {
  const PartTimes& first = parts[kFirstForward];
  const PartTimes& remainder = parts[kRemainder];
  const Named forward = longest(
      {{on_cores(first.busy[StreamKind::Compute], update_s, 0, machine), "compute, forward"},
       {first.busy[StreamKind::Load], "load, forward"},
       {update_on_cores(update_s, first.copied_bytes, machine), "update, forward"}});
  const Named backward =
      longest({{remainder.busy[StreamKind::Compute], "compute, backward"},
               {remainder.busy[StreamKind::Load] - early_load_s, "load, backward"},
               {remainder.busy[StreamKind::Store], "store, backward"}});
  const Named both{forward.seconds + backward.seconds,
                   forward.seconds > backward.seconds ? forward.name : backward.name};
  return longest({both, {first.busy[StreamKind::Load] + remainder.busy[StreamKind::Load], "load"}});
}

/// Runs the streams of a plan against a clock that jumps from one end of an operation to the next.
class Clockwork {
 public:
  Clockwork(const Plan& plan, const Trace& trace, const Layout& layout, const Machine& machine)
      : plan_(plan),
        trace_(trace),
        layout_(layout),
        machine_(machine),
        done_(plan.ops.size(), false) {
    result_.ops.resize(plan.ops.size());
    for (OpIndex i{0}; i < plan.ops.size(); ++i) {
      streams_[static_cast<int>(plan.ops[i].stream)].push_back(i);
    }
  }

  Simulation run() {
    for (;;) {
      while (start_what_can()) {
      }
      share_cores();
      double next_s = kNever;
      for (const Work& work : works_) next_s = std::min(next_s, work.end_s);
      if (next_s == kNever) break;
      now_s_ = next_s;
      for (Work& work : works_) {
        if (work.end_s <= now_s_) end(work);
      }
    }
    EBB_CHECK(num_done_ == plan_.ops.size(), "a plan waits for what never ends");
    return std::move(result_);
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  /// What a stream does now.
  struct Work {
    OpIndex op = kNone;
    double left_s = 0;  ///< remaining time at full speed, as of `since_s`
    double since_s = 0;
    double speed = 1;  ///< share of the full speed
    double cores = 0;  ///< share of the cores that a copy uses at full speed
    double end_s = kNever;
  };
  /// What a stream starts next: its position, and how many of its waits are over.
  struct Cursor {
    uint32_t at = 0;
    uint32_t num_over = 0;
  };

  /// The operation that may start on a stream now, or kNone.
  OpIndex find_ready(StreamKind stream) {
    const std::vector<OpIndex>& ops = streams_[static_cast<int>(stream)];
    Cursor& cursor = cursors_[static_cast<int>(stream)];
    if (cursor.at == ops.size()) return kNone;
    const auto waits = plan_.waits_of(plan_.ops[ops[cursor.at]]);
    while (cursor.num_over < waits.size() && done_[waits[cursor.num_over]]) ++cursor.num_over;
    return cursor.num_over == waits.size() ? ops[cursor.at] : kNone;
  }
  void move_on(StreamKind stream) {
    Cursor& cursor = cursors_[static_cast<int>(stream)];
    cursor = {cursor.at + 1};
  }

  /// Returns true where an operation took no time, so that more may start.
  bool start_what_can() {
    const size_t num_done = num_done_;
    move_chunks();
    start_load();
    for (const StreamInfo& info : kStreams) {
      const StreamKind stream = info.kind;
      if (stream == StreamKind::Load || works_[static_cast<int>(stream)].op != kNone) continue;
      const OpIndex op = find_ready(stream);
      if (op == kNone) continue;
      move_on(stream);
      start(op);
    }
    return num_done_ != num_done;
  }

  /// The copy thread allocates and drops, and submits copies to the link.
  void move_chunks() {
    for (OpIndex op; (op = find_ready(StreamKind::Load)) != kNone; move_on(StreamKind::Load)) {
      if (is_copy(plan_.ops[op])) continue;
      result_.ops[op].start_s = now_s_;
      is_over(op);
    }
  }

  void start_load() {
    if (works_[static_cast<int>(StreamKind::Load)].op != kNone) return;
    const std::vector<OpIndex>& ops = streams_[static_cast<int>(StreamKind::Load)];
    const uint32_t end = cursors_[static_cast<int>(StreamKind::Load)].at;
    while (next_load_ < end && !is_copy(plan_.ops[ops[next_load_]])) ++next_load_;
    if (next_load_ < end) start(ops[next_load_++]);
  }

  void start(OpIndex index) {
    const Op& op = plan_.ops[index];
    const int stream = static_cast<int>(op.stream);
    Work& work = works_[stream];
    work.op = index;
    work.left_s = is_done(op, plan_) ? 0 : duration_s(op, plan_, trace_, layout_, machine_);
    work.since_s = now_s_;
    work.speed = 1;
    work.cores = 0;
    if (is_copy(op) && machine_.shared_cores) {
      const double on_cores_s =
          time_of(static_cast<double>(layout_.used_bytes(op.chunk)), machine_.copy_bytes_per_s);
      work.left_s = std::max(work.left_s, on_cores_s);
      work.cores = work.left_s > 0 ? on_cores_s / work.left_s : 0;
    }
    work.end_s = now_s_ + work.left_s;
    result_.ops[index].start_s = now_s_;
    result_.stream_busy.seconds[stream] += work.left_s;
    if (op.stream == StreamKind::Compute) {
      if (computed_) result_.stall_s += now_s_ - last_computed_s_;
      computed_ = true;
    }
    if (work.left_s == 0) end(work);
  }

  void end(Work& work) {
    if (plan_.ops[work.op].stream == StreamKind::Compute) last_computed_s_ = now_s_;
    is_over(work.op);
    work.op = kNone;
    work.end_s = kNever;
  }

  void is_over(OpIndex op) {
    result_.ops[op].end_s = now_s_;
    result_.seconds = now_s_;
    done_[op] = true;
    ++num_done_;
  }

  /// Copies get cores first; kernels and the optimizer share the remainder equally.
  void share_cores() {
    if (!machine_.shared_cores) return;
    double copies = 0;
    int num_others = 0;
    for (const StreamInfo& info : kStreams) {
      const StreamKind stream = info.kind;
      const Work& work = works_[static_cast<int>(stream)];
      if (work.op == kNone) continue;
      copies += work.cores;
      num_others += shares(stream);
    }
    const double each = num_others > 0 ? std::max(0.0, 1 - copies) / num_others : 0;
    for (const StreamInfo& info : kStreams) {
      const StreamKind stream = info.kind;
      Work& work = works_[static_cast<int>(stream)];
      if (work.op == kNone) continue;
      const double of_copy = stream == StreamKind::Compute ? 1 : 1 / std::max(1.0, copies);
      set_speed(work, shares(stream) ? each : of_copy);
    }
  }

  /// Emulated kernels use no cores.
  bool shares(StreamKind stream) const {
    return stream == StreamKind::Update ||
           (stream == StreamKind::Compute && !machine_.emulate_compute);
  }

  void set_speed(Work& work, double speed) {
    if (speed == work.speed) return;
    work.left_s -= (now_s_ - work.since_s) * work.speed;
    work.since_s = now_s_;
    work.speed = speed;
    work.end_s = speed > 0 ? now_s_ + std::max(0.0, work.left_s) / speed : kNever;
  }

  const Plan& plan_;
  const Trace& trace_;
  const Layout& layout_;
  const Machine& machine_;
  double now_s_ = 0;
  std::array<Work, kNumStreamKinds> works_;
  std::array<std::vector<OpIndex>, kNumStreamKinds> streams_;  // in order
  std::array<Cursor, kNumStreamKinds> cursors_;  // for the load stream: of the copy thread
  uint32_t next_load_ = 0;  // position in the load stream: the next copy of the link
  std::vector<uint8_t> done_;
  size_t num_done_ = 0;
  bool computed_ = false;
  double last_computed_s_ = 0;
  Simulation result_;
};

}  // namespace

Bound lower_bound(const Trace& trace, const Layout& layout, const Plan& plan,
                  const Machine& machine, bool clipped) {
  const std::vector<Part> parts = parts_of(plan, trace);
  std::array<PartTimes, 2> times;
  Bound bound;
  double speculated_s = 0;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    const double seconds = is_done(op, plan) ? 0 : duration_s(op, plan, trace, layout, machine);
    PartTimes& part = times[parts[i]];
    if (is_copy(plan.ops[i])) {
      part.copied_bytes += static_cast<double>(layout.used_bytes(plan.ops[i].chunk));
    }
    if (op.stream != StreamKind::Update) {
      part.busy[op.stream] += seconds;
      continue;
    }
    bound.update_s += seconds;
    if (op.kind == OpKind::Speculate) speculated_s += seconds;
  }
  const auto both = [&](StreamKind kind) { return times[0].busy[kind] + times[1].busy[kind]; };
  bound.compute_s = both(StreamKind::Compute);
  bound.load_s = both(StreamKind::Load);
  bound.store_s = both(StreamKind::Store);
  const double copied_bytes = static_cast<double>(plan.loaded_bytes + plan.stored_bytes);
  Named least = longest(
      {{on_cores(bound.compute_s, bound.update_s, copied_bytes, machine),
        info_of(StreamKind::Compute).name},
       {bound.load_s, info_of(StreamKind::Load).name},
       {bound.store_s, info_of(StreamKind::Store).name},
       {both(StreamKind::Fetch), info_of(StreamKind::Fetch).name},
       {update_on_cores(bound.update_s, copied_bytes, machine), info_of(StreamKind::Update).name}});
  if (clipped) {
    const double early_bytes =
        static_cast<double>(plan.num_blocks) * static_cast<double>(layout.chunk_bytes());
    const Named two = clipped_bound(times, bound.update_s - speculated_s,
                                    time_of(early_bytes, machine.load_bytes_per_s), machine);
    if (two.seconds >= least.seconds) least = two;
  }
  bound.seconds = least.seconds;
  bound.bound_by = least.name;
  return bound;
}

Simulation simulate(const Plan& plan, const Trace& trace, const Layout& layout,
                    const Machine& machine) {
  return Clockwork(plan, trace, layout, machine).run();
}

}  // namespace ebb

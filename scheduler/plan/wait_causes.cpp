#include "scheduler/plan/wait_causes.h"

#include <algorithm>

namespace ebb {
namespace {

struct CauseInfo {
  std::string_view name;
  std::string_view resource;
};
/// By cause.
constexpr CauseInfo kCauses[kNumWaitCauses] = {
    {"updates", "host memory bandwidth"}, {"loads", "link to the device"},
    {"stores", "link to the host"},       {"free blocks", "device memory"},
    {"the norm", "last gradients, norm"}, {"the program", "submitting kernels"},
    {"other ranks", "the slowest rank"},  {"fetches", "network"},
};

/// The cause where this operation took the time.
WaitCause cause_of(const Op& op) {
  if (op.kind == OpKind::Norm) return WaitCause::Norm;
  switch (op.stream) {
    case StreamKind::Load:
      return WaitCause::Load;
    case StreamKind::Store:
      return WaitCause::Store;
    case StreamKind::Update:
      return WaitCause::Update;
    case StreamKind::Send:
    case StreamKind::Receive:
    case StreamKind::Parts:
      return op.message == Message::Copied ? WaitCause::Fetch : WaitCause::Ranks;
    case StreamKind::Fetch:
      return WaitCause::Fetch;
    case StreamKind::Compute:
      break;
  }
  return WaitCause::Block;
}

/// Divides one wait after the other.
class Attribution {
 public:
  Attribution(const Plan& plan, std::span<const OpTime> times, const AddShare& add)
      : plan_(plan), times_(times), add_(add) {}

  void run() {
    double computed_s = 0;
    OpIndex last = kNone;
    for (OpIndex i{0}; i < plan_.ops.size(); ++i) {
      if (last == kNone || times_[i].end_s > times_[last].end_s) last = i;
      if (plan_.ops[i].stream != StreamKind::Compute) continue;
      if (times_[i].start_s > computed_s) divide(i, last_wait(i), computed_s, times_[i].start_s);
      computed_s = times_[i].end_s;
    }
    if (last != kNone && times_[last].end_s > computed_s) {
      divide(kNone, last, computed_s, times_[last].end_s);
    }
  }

 private:
  /// A time in which a stream was idle.
  struct Gap {
    OpIndex by = kNone;      // the operation that ended the gap; kNone: no operation was late
    bool for_block = false;  // it is a call that still used a block
  };

  /// The wait of `waiting` from `from_s` to `to_s`, which ended with the operation `direct`.
  void divide(OpIndex waiting, OpIndex direct, double from_s, double to_s) {
    share_ = {.waiting = waiting, .start_s = from_s};
    const double direct_s =
        direct == kNone ? from_s : std::clamp(times_[direct].end_s, from_s, to_s);
    if (direct_s > from_s) {
      share_.direct = direct;
      const OpIndex late = resolved(direct);
      const double left_s = charge_late(late, direct_s - from_s);
      charge(late == kNone ? direct : late, left_s);
    }
    add_part(WaitCause::Program, kNone, to_s - direct_s);
    since_s_ = to_s;
  }

  /// The operation that ends last among those that `op` waits for.
  OpIndex last_wait(OpIndex op) const {
    OpIndex last = kNone;
    for (const OpIndex w : plan_.waits_of(plan_.ops[op])) {
      if (last == kNone || times_[w].end_s > times_[last].end_s) last = w;
    }
    return last;
  }

  /// The operation before this one on its stream; on the load stream, the transfer before it.
  OpIndex before(OpIndex op) const {
    const StreamKind stream = plan_.ops[op].stream;
    for (uint32_t i = op; i-- > 0;) {
      if (plan_.ops[i].stream != stream) continue;
      if (stream == StreamKind::Load && takes_no_time(plan_.ops[i])) continue;
      return OpIndex(i);
    }
    return kNone;
  }

  /// The wait because of which `op` did not begin before it did; kNone if its stream was busy. The
  /// copy thread waits for one operation after the other, so a transfer may also have been late
  /// because of what an earlier operation of its stream waited for.
  OpIndex late_wait(OpIndex op) const {
    for (uint32_t i = op + 1; i-- > 0;) {
      if (plan_.ops[i].stream != plan_.ops[op].stream) continue;
      const OpIndex wait = last_wait(OpIndex(i));
      if (wait != kNone && times_[wait].end_s >= times_[op].start_s) return wait;
      if (plan_.ops[op].stream != StreamKind::Load) break;
    }
    return kNone;
  }

  /// Drops and allocations take no time: the operation that they waited for is late instead.
  OpIndex resolved(OpIndex by) const {
    while (by != kNone && takes_no_time(plan_.ops[by])) {
      const OpIndex wait = late_wait(by);
      by = wait != kNone ? wait : before(by);
    }
    return by;
  }

  Gap gap_before(OpIndex op) const {
    const OpIndex by = resolved(late_wait(op));
    if (by == kNone || plan_.ops[by].stream != StreamKind::Compute) return {by};
    return plan_.ops[op].stream == StreamKind::Load ? Gap{by, true} : Gap{};
  }

  /// Charges `amount_s` because `op` ended late. Returns what no operation explains.
  double charge_late(OpIndex op, double amount_s) {
    const double begin_s = charge_path_before(op, amount_s);
    for (OpIndex i = op; i != kNone && times_[i].end_s > begin_s; i = before(i)) {
      const double busy_s = times_[i].end_s - std::max(begin_s, times_[i].start_s);
      const double charged_s = std::min(amount_s, busy_s);
      charge(i, charged_s);
      amount_s -= charged_s;
    }
    return amount_s;
  }

  /// Charges the part of the path that is on other streams than that of `op`, and takes it from
  /// `amount_s`. Returns when the part on this stream begins.
  double charge_path_before(OpIndex op, double& amount_s) {
    for (OpIndex i = op; i != kNone && times_[i].start_s > since_s_; i = before(i)) {
      const double idle_s = times_[i].start_s - end_before(i);
      if (idle_s <= 0) continue;
      const Gap gap = gap_before(i);
      if (!gap.for_block) {
        if (gap.by == kNone) return times_[i].start_s;
        const double charged_s = std::min(amount_s, times_[i].start_s - since_s_);
        amount_s += charge_late(gap.by, charged_s) - charged_s;
        return times_[i].start_s;
      }
      // An earlier block helps only while the link is idle. Then the copies before come next.
      const double charged_s = std::min(amount_s, idle_s);
      charge(gap.by, charged_s);
      amount_s -= charged_s;
    }
    return since_s_;
  }

  double end_before(OpIndex op) const {
    const OpIndex previous = before(op);
    return previous == kNone ? since_s_ : std::max(since_s_, times_[previous].end_s);
  }

  void charge(OpIndex op, double seconds) { add_part(cause_of(plan_.ops[op]), op, seconds); }

  void add_part(WaitCause cause, OpIndex by, double seconds) {
    if (seconds <= 0) return;
    WaitShare share = share_;
    share.cause = cause;
    share.by = by;
    share.seconds = seconds;
    add_(share);
  }

  const Plan& plan_;
  std::span<const OpTime> times_;
  const AddShare& add_;
  WaitShare share_;     // what all parts of the present wait have in common
  double since_s_ = 0;  // the end of the wait before
};

}  // namespace

std::string_view name_of(WaitCause cause) { return kCauses[static_cast<int>(cause)].name; }
std::string_view resource_of(WaitCause cause) { return kCauses[static_cast<int>(cause)].resource; }

void for_each_wait_share(const Plan& plan, std::span<const OpTime> times, const AddShare& add) {
  Attribution(plan, times, add).run();
}

}  // namespace ebb

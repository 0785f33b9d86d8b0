#include "tools/spent_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace ebb {
namespace {

/// The operation that ends last among those that `op` waits for.
OpIndex last_cause(const Plan& plan, std::span<const OpTime> times, const Op& op) {
  OpIndex cause = kNone;
  for (const OpIndex w : plan.waits_of(op)) {
    if (cause == kNone || times[w].end_s > times[cause].end_s) cause = w;
  }
  return cause;
}

/// The operation that delayed `op`. If `op` waited for the assignment of a block, this is the
/// operation that delayed the assignment.
OpIndex real_cause(const Plan& plan, std::span<const OpTime> times, const Op& op) {
  OpIndex cause = last_cause(plan, times, op);
  while (cause != kNone && takes_no_time(plan.ops[cause])) {
    const OpIndex before = last_cause(plan, times, plan.ops[cause]);
    if (before == kNone) break;
    cause = before;
  }
  return cause;
}

double& waited_for(SpentTime& spent, const Plan& plan, OpIndex cause) {
  if (cause == kNone) return spent.rest_s;
  const StreamKind stream = plan.ops[cause].stream;
  return stream == StreamKind::Compute ? spent.rest_s : spent.streams[stream];
}

}  // namespace

double SpentTime::total_s() const {
  return std::accumulate(streams.seconds.begin(), streams.seconds.end(), 0.0) + rest_s;
}

SpentTime& SpentTime::operator+=(const SpentTime& other) {
  for (const StreamInfo& info : kStreams) streams[info.kind] += other.streams[info.kind];
  rest_s += other.rest_s;
  return *this;
}

SpentTime spent_time(const Plan& plan, std::span<const OpTime> times, double step_s,
                     double kernels_s) {
  SpentTime spent;
  double now = 0, stored = 0, updated = 0;
  for (uint32_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    const OpTime& time = times[i];
    if (op.stream == StreamKind::Store) stored = std::max(stored, time.end_s);
    if (op.stream == StreamKind::Update) updated = std::max(updated, time.end_s);
    if (op.stream != StreamKind::Compute) continue;
    if (time.start_s > now) {
      waited_for(spent, plan, real_cause(plan, times, op)) += time.start_s - now;
    }
    spent.streams[StreamKind::Compute] += time.end_s - time.start_s;
    now = time.end_s;
  }
  const double between_kernels_s = std::max(0.0, spent.streams[StreamKind::Compute] - kernels_s);
  spent.streams[StreamKind::Compute] -= between_kernels_s;
  spent.rest_s += between_kernels_s;
  spent.streams[StreamKind::Store] += std::max(0.0, stored - now);
  spent.streams[StreamKind::Update] += std::max(0.0, updated - std::max(stored, now));
  spent.rest_s += std::max(0.0, step_s - std::max({now, stored, updated}));
  return spent;
}

std::string format_spent(const SpentTime& spent) {
  const double total = spent.total_s();
  const auto percent = [total](double seconds) { return total > 0 ? 100 * seconds / total : 0.0; };
  std::string text =
      fmt::format("compute {:.1f} %, waiting for", percent(spent.streams[StreamKind::Compute]));
  for (const StreamInfo& info : kStreams) {
    if (info.kind == StreamKind::Compute) continue;
    text += fmt::format(" {}s {:.1f} %,", info.name, percent(spent.streams[info.kind]));
  }
  return text + fmt::format(" rest {:.1f} %", percent(spent.rest_s));
}

}  // namespace ebb

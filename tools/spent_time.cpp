#include "tools/spent_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace ebb {

double SpentTime::total_s() const {
  return std::accumulate(waits.begin(), waits.end(), kernels_s) + rest_s;
}

SpentTime& SpentTime::operator+=(const SpentTime& other) {
  kernels_s += other.kernels_s;
  for (size_t i = 0; i < waits.size(); ++i) waits[i] += other.waits[i];
  rest_s += other.rest_s;
  return *this;
}

SpentTime spent_time(const Plan& plan, std::span<const OpTime> times, double step_s,
                     double kernels_s) {
  SpentTime spent;
  double computed_s = 0, end_s = 0;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    end_s = std::max(end_s, times[i].end_s);
    if (plan.ops[i].stream == StreamKind::Compute) computed_s += times[i].end_s - times[i].start_s;
  }
  for_each_wait_share(plan, times, [&spent](const WaitShare& share) {
    const bool of_program = share.cause == WaitCause::Program;
    (of_program ? spent.rest_s : spent.waits[static_cast<size_t>(share.cause)]) += share.seconds;
  });
  spent.kernels_s = std::min(computed_s, kernels_s);
  spent.rest_s += computed_s - spent.kernels_s + std::max(0.0, step_s - end_s);
  return spent;
}

std::string format_spent(const SpentTime& spent) {
  const double total = spent.total_s();
  const auto percent = [total](double seconds) { return total > 0 ? 100 * seconds / total : 0.0; };
  std::string text = fmt::format("compute {:.1f} %, waiting for", percent(spent.kernels_s));
  for (int i = 0; i < kNumWaitCauses; ++i) {
    const auto cause = static_cast<WaitCause>(i);
    if (cause == WaitCause::Program) continue;
    const bool is_of_ranks = cause == WaitCause::Ranks || cause == WaitCause::Fetch;
    if (is_of_ranks && spent.waited_s(cause) == 0) continue;  // there may be one rank
    text += fmt::format(" {} {:.1f} %,", name_of(cause), percent(spent.waited_s(cause)));
  }
  return text + fmt::format(" rest {:.1f} %", percent(spent.rest_s));
}

}  // namespace ebb

#include <fmt/format.h>

#include "scheduler/search/choose.h"
#include "scheduler/search/evaluator.h"
#include "scheduler/search/prepare.h"

namespace ebb {

std::string why_chosen(const Preparation& prepared) {
  const Candidate& chosen = prepared.candidates[prepared.chosen];
  const Candidate* next = nullptr;
  for (const Candidate& c : prepared.candidates) {
    if (&c == &chosen || !c.why_not.empty()) continue;
    if (next == nullptr || is_better(c, *next)) next = &c;
  }
  if (prepared.candidates.size() == 1) return "the flags leave no other candidate";
  if (next == nullptr) return "the only candidate that fits";
  if (chosen.seconds < next->seconds * (1 - kEqualSeconds)) {
    return fmt::format("fastest, the next takes {:.3f} x", next->seconds / chosen.seconds);
  }
  if (next->seconds < chosen.seconds * (1 - kEqualSeconds)) {
    return fmt::format(
        "{:.3f} x the time of the next, which speculates and is slower in clipped steps",
        chosen.seconds / next->seconds);
  }
  const std::string_view among = chosen.seconds > 0 ? "as fast as another" : "no rates are known";
  if (chosen.moved_bytes < next->moved_bytes) return fmt::format("{}; moves fewer bytes", among);
  if (chosen.flops < next->flops) return fmt::format("{}; computes less", among);
  return fmt::format("{}; the simpler settings", among);
}

std::string too_large_for_host(const Ledger& ledger, size_t budget) {
  const size_t needed = ledger.total(Tier::Host);
  return with_table(
      fmt::format(
          "the plan does not fit: host memory {} ({} bytes), the smallest that works is {} ({} "
          "bytes)",
          format_bytes(budget), budget, format_bytes(needed), needed),
      ledger.table());
}

std::string too_large_together(const Preparation& context, const Ledger& ledger, size_t budget) {
  const size_t home = ledger.total(Tier::Host);
  const size_t device = ledger.total(Tier::Device);
  return with_table(
      fmt::format(
          "the plan does not fit: it needs {} of host memory and {} on the host device, together "
          "{}, but this machine has only {}; with the smallest device budget, {}, it would need at "
          "least "
          "{}",
          format_bytes(home), format_bytes(device), format_bytes(home + device),
          format_bytes(budget), format_bytes(context.smallest_device_bytes),
          format_bytes(home + context.smallest_device_bytes)),
      ledger.table());
}

}  // namespace ebb

#include "tools/candidate_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "device/errors.h"

namespace ebb {
namespace {

/// `shows_sums`: with the column that says where sums of groups wait.
std::string candidate_line(const Candidate& c, bool chosen, uint32_t num_layers, bool shows_sums) {
  const Schedule& s = c.schedule;
  std::string settings =
      fmt::format("{} {:<11} {:<22} {:<11} {:<8}", chosen ? '*' : ' ', name_of(s.micro_batch_order),
                  name_of(s.recompute, num_layers), name_of(s.activations), name_of(s.update));
  if (shows_sums) settings += fmt::format(" {:<6}", s.sums_on_devices ? "device" : "host");
  if (!c.why_not.empty()) return fmt::format("{} {}\n", settings, c.why_not);
  return fmt::format("{} {:>10.4f} {:>10.4f} {:<18} {:>12} {:>12}\n", settings, c.seconds,
                     c.bound.seconds, c.bound.bound_by, format_bytes(c.moved_bytes),
                     format_bytes(c.device_bytes));
}

}  // namespace

std::string candidate_table(const Preparation& p) {
  const bool shows_sums = std::ranges::any_of(
      p.candidates, [](const Candidate& c) { return c.schedule.sums_on_devices; });
  std::string text =
      fmt::format("  {:<11} {:<22} {:<11} {:<8}{} {:>10} {:>10} {:<18} {:>12} {:>12}\n",
                  "micro-batch", "recompute", "activations", "update", shows_sums ? " sums  " : "",
                  "predicted", "bound s", "by", "moves", "device");
  const auto line_of = [&](size_t i, bool is_chosen) {
    return candidate_line(p.candidates[i], is_chosen, p.num_layers, shows_sums);
  };
  // Different requests may have the same result, which is shown once.
  std::set<std::string> shown = {line_of(p.chosen, false)};
  for (size_t i = 0; i < p.candidates.size(); ++i) {
    const bool is_chosen = i == p.chosen;
    const std::string line = line_of(i, is_chosen);
    if (is_chosen || shown.insert(line).second) text += line;
  }
  return text;
}

}  // namespace ebb

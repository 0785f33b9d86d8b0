#include "tools/candidate_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include "device/errors.h"

namespace ebb {
namespace {

constexpr size_t kMostShown = 5;

/// The columns that only some plans need: where sums of groups wait, and whether each machine has a
/// copy of the weights of the others.
struct MoreColumns {
  bool sums, copies;
};

std::string candidate_line(const Preparation& p, const Candidate& c, const MoreColumns& more) {
  const Schedule& s = c.schedule;
  std::string settings = fmt::format("  {:<11} {:<26} {:<11} {:<9}", name_of(s.micro_batch_order),
                                     name_of(s.recompute, p.num_layers), name_of(s.activations),
                                     name_of_updates(p.options, s));
  if (more.sums) settings += fmt::format(" {:<6}", s.sums_on_devices ? "device" : "host");
  if (more.copies) settings += fmt::format(" {:<7}", s.copies_weights ? "machine" : "rank");
  if (!c.why_not.empty()) return fmt::format("{} {}\n", settings, c.why_not);
  return fmt::format("{} {:>10.4f} {:>10.4f} {:<18} {:>12} {:>12}\n", settings, c.seconds,
                     c.bound.seconds, c.bound.bound_by, format_bytes(c.moved_bytes),
                     format_bytes(c.device_bytes));
}

/// The chosen candidate, then the others, first those that fit, the fastest first.
std::vector<size_t> best_first(const Preparation& p) {
  std::vector<size_t> order(p.candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) {
    const Candidate& c = p.candidates[i];
    return std::tuple(i != p.chosen, !c.why_not.empty(), c.seconds);
  });
  return order;
}

}  // namespace

std::string candidate_table(const Preparation& p) {
  const MoreColumns more = {
      .sums = std::ranges::any_of(p.candidates,
                                  [](const Candidate& c) { return c.schedule.sums_on_devices; }),
      .copies = p.division.place.num_machines > 1};
  std::string text =
      fmt::format("  {:<11} {:<26} {:<11} {:<9}{}{} {:>10} {:>10} {:<18} {:>12} {:>12}\n",
                  "micro-batch", "recompute", "activations", "update", more.sums ? " sums  " : "",
                  more.copies ? " fetches" : "", "predicted", "bound s", "by", "moves", "device");
  std::set<std::string> known;
  for (const size_t i : best_first(p)) {
    // Different requests may have the same result, which is shown once.
    std::string line = candidate_line(p, p.candidates[i], more);
    const bool is_new = known.insert(line).second;
    if (!is_new || known.size() > kMostShown) continue;
    if (i == p.chosen) line.front() = '*';
    text += line;
  }
  if (known.size() > kMostShown) text += fmt::format("  {} more\n", known.size() - kMostShown);
  return text;
}

}  // namespace ebb

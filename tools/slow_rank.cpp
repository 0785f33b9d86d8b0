#include "tools/slow_rank.h"

#include <fmt/format.h>

#include <algorithm>

namespace ebb {
namespace {

/// The lower median of the values other than the largest.
double median_of_others(std::span<const double> seconds) {
  std::vector<double> sorted(seconds.begin(), seconds.end());
  std::ranges::sort(sorted);
  sorted.pop_back();
  return sorted[(sorted.size() - 1) / 2];
}

}  // namespace

std::optional<std::string> SlowRank::add(std::span<const double> seconds) {
  if (is_first_ || is_reported_ || seconds.size() < 2) {
    is_first_ = false;
    return std::nullopt;
  }
  const auto slowest = std::ranges::max_element(seconds);
  const auto rank = static_cast<uint32_t>(slowest - seconds.begin());
  const double others_s = median_of_others(seconds);
  const bool is_slow = *slowest >= kMuchSlower * others_s && *slowest >= others_s + kLeast_s;
  is_reported_ = is_slow && suspect_ == rank;
  suspect_ = is_slow ? std::optional(rank) : std::nullopt;
  if (!is_reported_) return std::nullopt;
  return fmt::format(
      "rank {} is slow: a micro-batch takes {:.3g} s there and {:.3g} s on the other ranks, which "
      "wait for it",
      rank, *slowest, others_s);
}

}  // namespace ebb

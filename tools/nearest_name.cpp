#include "tools/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace ebb {
namespace {

/// The Levenshtein distance, computed row by row.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// Names of other programs that are not similar to Ebb's.
constexpr std::string_view kNamesElsewhere[][2] = {
    {"learning-rate", "lr"},
    {"max-steps", "steps"},
    {"num-train-epochs", "epochs"},
    {"num-epochs", "epochs"},
    {"per-device-train-batch-size", "micro-batch-size"},
    {"gradient-accumulation-steps", "gradient-accumulation"},
    {"lr-scheduler-type", "lr-schedule"},
    {"output-dir", "save"}};

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> names) {
  std::string meant(name);
  std::ranges::replace(meant, '_', '-');
  for (const auto& [elsewhere, here] : kNamesElsewhere) {
    if (meant == elsewhere && std::ranges::count(names, here) > 0) return std::string(here);
  }
  size_t least = 1 + meant.size() / 5;  // one error, and one more for every five letters
  std::string nearest;
  for (const std::string& other : names) {
    const size_t d = distance(meant, other);
    if (d > least || (d == least && !nearest.empty())) continue;
    least = d;
    nearest = other;
  }
  if (!nearest.empty() || meant.size() < 3) return nearest;
  const auto contains = [&](const std::string& other) { return other.find(meant) != other.npos; };
  const auto first = std::ranges::find_if(names, contains);
  if (std::ranges::count_if(names, contains) == 1) return *first;
  return "";
}

}  // namespace ebb

#include "tools/nearest_name.h"

#include <fmt/format.h>

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

/// In lower case, with '-' for '_' and spaces.
std::string normalised(std::string_view name) {
  std::string result(name);
  for (char& c : result) {
    if (c == '_' || c == ' ') c = '-';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

/// Can `whole` be made from `part` by insertions alone?
bool is_subsequence(std::string_view part, std::string_view whole) {
  size_t found = 0;
  for (const char c : whole) {
    if (found < part.size() && part[found] == c) ++found;
  }
  return found == part.size();
}

/// The only one of `names` that `matches`; empty if there is none, or more than one.
template <class Matches>
std::string only_one(std::span<const std::string> names, const Matches& matches) {
  const auto first = std::ranges::find_if(names, matches);
  return std::ranges::count_if(names, matches) == 1 ? *first : "";
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
    {"output-dir", "save"},
    {"save-every", "save-steps"},
    {"ram", "host-memory"},
    {"vram", "device-memory"}};

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> names) {
  const std::string meant = normalised(name);
  for (const auto& [elsewhere, here] : kNamesElsewhere) {
    if (meant == elsewhere && std::ranges::count(names, here) > 0) return std::string(here);
  }
  constexpr size_t kShortest = 3, kShortestParts = 5;
  const std::string completed = only_one(
      names, [&](const std::string& other) { return normalised(other).starts_with(meant); });
  if (!completed.empty() && meant.size() >= kShortest) return completed;
  size_t least = 1 + meant.size() / 5;  // one error, and one more for every five letters
  std::string nearest;
  for (const std::string& other : names) {
    const size_t d = distance(meant, normalised(other));
    if (d > least || (d == least && !nearest.empty())) continue;
    least = d;
    nearest = other;
  }
  if (!nearest.empty() || meant.size() < kShortest) return nearest;
  const std::string ended =
      only_one(names, [&](const std::string& other) { return normalised(other).ends_with(meant); });
  if (!ended.empty()) return ended;
  const std::string longer = only_one(names, [&](const std::string& other) {
    return normalised(other).find(meant) != std::string::npos;
  });
  if (!longer.empty() || meant.size() < kShortestParts) return longer;
  return only_one(
      names, [&](const std::string& other) { return is_subsequence(meant, normalised(other)); });
}

std::string did_you_mean(std::string_view name) {
  return name.empty() ? "" : fmt::format("; did you mean {}?", name);
}

}  // namespace ebb

#include "tests/trainer/matrix.h"

#include <algorithm>
#include <cstdint>

namespace ebb::test {
namespace {

constexpr size_t kNumDimensions = kNumValues.size();
constexpr size_t kMostValues = 4;

/// Returns a number that identifies three dimensions and their values in `choice`.
size_t triple_of(const Choice& choice, size_t a, size_t b, size_t c) {
  size_t number = (a * kNumDimensions + b) * kNumDimensions + c;
  for (const size_t dimension : {a, b, c}) {
    number = number * kMostValues + static_cast<size_t>(choice[dimension]);
  }
  return number;
}

template <class Visit>
void for_each_triple(const Choice& choice, const Visit& visit) {
  for (size_t a = 0; a < kNumDimensions; ++a) {
    for (size_t b = a + 1; b < kNumDimensions; ++b) {
      for (size_t c = b + 1; c < kNumDimensions; ++c) visit(triple_of(choice, a, b, c));
    }
  }
}

/// Returns an array that has a 1 at the number of each triple of the matrix.
std::vector<char> all_triples() {
  constexpr size_t kCube = kMostValues * kMostValues * kMostValues;
  std::vector<char> triples(kNumDimensions * kNumDimensions * kNumDimensions * kCube, 0);
  for (const Choice& choice : whole_matrix()) {
    for_each_triple(choice, [&](size_t t) { triples[t] = 1; });
  }
  return triples;
}

size_t count(const std::vector<char>& triples) {
  return static_cast<size_t>(std::count(triples.begin(), triples.end(), 1));
}

}  // namespace

TrainingCase case_of(const Choice& choice) {
  static constexpr size_t kNumPieces[] = {1, 4, 9};
  static constexpr UpdateOrder kUpdates[] = {UpdateOrder::Wait, UpdateOrder::Overlap,
                                             UpdateOrder::Speculate};
  return {
      .dtype = choice[0] == 0 ? DType::BF16 : DType::F32,
      .clip = choice[1] == 1,
      .accumulation = static_cast<uint32_t>(choice[2] + 1),
      .memory = static_cast<Memory>(choice[3]),
      .num_pieces = kNumPieces[choice[4]],
      // Nothing, each layer, two layers together, or another set of values in each layer.
      .recompute = choice[5] == 0   ? kRecomputeNone
                   : choice[5] == 1 ? kRecomputeEach
                   : choice[5] == 2 ? recompute_together(2)
                                    : Recompute{{kMlpLevel, kKeepAll, kAttentionLevel, kNorms}},
      .num_threads = choice[6] + 1,
      .update = kUpdates[choice[7]],
      .order = choice[8] == 0 ? MicroBatchOrder::Horizontal : MicroBatchOrder::Vertical,
      .activations = choice[9] == 1 ? ActivationPlacement::Offload : ActivationPlacement::Device,
      .between = static_cast<Between>(choice[10])};
}

std::vector<Choice> whole_matrix() {
  std::vector<Choice> all;
  Choice choice{};
  for (size_t at = 0; at < kNumDimensions;) {
    all.push_back(choice);
    for (at = 0; at < kNumDimensions && ++choice[at] == kNumValues[at]; ++at) choice[at] = 0;
  }
  return all;
}

/// Greedy: adds the choice that has the most missing triples, the first of equals. The count of a
/// choice only falls, so a choice is counted again only if its last count exceeds the best one.
std::vector<Choice> cover_of_matrix() {
  const std::vector<Choice> all = whole_matrix();
  std::vector<char> missing = all_triples();
  std::vector<size_t> gains(all.size(), SIZE_MAX);  // the last counts
  std::vector<Choice> cover;
  while (count(missing) > 0) {
    size_t best = 0, most = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (gains[i] <= most) continue;
      gains[i] = 0;
      for_each_triple(all[i], [&](size_t t) { gains[i] += static_cast<size_t>(missing[t]); });
      if (gains[i] > most) most = gains[i], best = i;
    }
    cover.push_back(all[best]);
    for_each_triple(all[best], [&](size_t t) { missing[t] = 0; });
  }
  return cover;
}

size_t num_missing_triples(const std::vector<Choice>& cover) {
  std::vector<char> missing = all_triples();
  for (const Choice& choice : cover) {
    for_each_triple(choice, [&](size_t t) { missing[t] = 0; });
  }
  return count(missing);
}

}  // namespace ebb::test

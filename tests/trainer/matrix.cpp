#include "tests/trainer/matrix.h"

#include <set>

namespace ebb::test {
namespace {

constexpr size_t kNumDimensions = kNumValues.size();
using Triple = std::array<int, 6>;  // three dimensions and their values

template <class Visit>
void for_each_triple(const Choice& choice, const Visit& visit) {
  for (int a = 0; a < static_cast<int>(kNumDimensions); ++a) {
    for (int b = a + 1; b < static_cast<int>(kNumDimensions); ++b) {
      for (int c = b + 1; c < static_cast<int>(kNumDimensions); ++c) {
        visit(Triple{a, b, c, choice[a], choice[b], choice[c]});
      }
    }
  }
}

std::set<Triple> all_triples() {
  std::set<Triple> triples;
  for (const Choice& choice : whole_matrix()) {
    for_each_triple(choice, [&](const Triple& t) { triples.insert(t); });
  }
  return triples;
}

}  // namespace

TrainingCase case_of(const Choice& choice) {
  static constexpr size_t kNumPieces[] = {1, 4, 9};
  return {
      .dtype = choice[0] == 0 ? DType::BF16 : DType::F32,
      .clip = choice[1] == 1,
      .accumulation = static_cast<uint32_t>(choice[2] + 1),
      .memory = static_cast<Memory>(choice[3]),
      .num_pieces = kNumPieces[choice[4]],
      .recompute = static_cast<Recompute>(choice[5]),  // none, and 1 or 2 blocks at once
      .num_threads = choice[6] + 1,
      .update = choice[7] == 0 ? UpdateOrder::Wait : UpdateOrder::Overlap,
      .order = choice[8] == 0 ? MicroBatchOrder::Horizontal : MicroBatchOrder::Vertical,
      .activations = choice[9] == 0 ? ActivationPlacement::Device : ActivationPlacement::Offload};
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

/// Greedy: the choice that has most of what is missing, the first of equals.
std::vector<Choice> cover_of_matrix() {
  const std::vector<Choice> all = whole_matrix();
  std::set<Triple> missing = all_triples();
  std::vector<Choice> cover;
  while (!missing.empty()) {
    const Choice* best = nullptr;
    size_t most = 0;
    for (const Choice& choice : all) {
      size_t gain = 0;
      for_each_triple(choice, [&](const Triple& t) { gain += missing.count(t); });
      if (gain > most) most = gain, best = &choice;
    }
    cover.push_back(*best);
    for_each_triple(*best, [&](const Triple& t) { missing.erase(t); });
  }
  return cover;
}

size_t num_missing_triples(const std::vector<Choice>& cover) {
  std::set<Triple> missing = all_triples();
  for (const Choice& choice : cover) {
    for_each_triple(choice, [&](const Triple& t) { missing.erase(t); });
  }
  return missing.size();
}

}  // namespace ebb::test

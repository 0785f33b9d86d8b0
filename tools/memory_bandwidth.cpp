#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "system/cores.h"
#include "system/thread_team.h"
#include "tools/machine.h"

namespace ebb {
namespace {

constexpr size_t kPieceWords = size_t{1} << 17;
constexpr int kRounds = 4;

void pass(ThreadTeam& team, std::vector<uint64_t>& words) {
  team.for_each(static_cast<int64_t>(words.size() / kPieceWords), [&words](int64_t piece) {
    uint64_t* const first = words.data() + static_cast<size_t>(piece) * kPieceWords;
    for (size_t i = 0; i < kPieceWords; ++i) first[i] += 1;
  });
}

}  // namespace

double measure_memory_bandwidth(size_t bytes) {
  ThreadTeam team(num_usable_cores());
  std::vector<uint64_t> words((bytes / sizeof(uint64_t) / kPieceWords + 1) * kPieceWords);
  double best_s = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    pass(team, words);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best_s = std::min(best_s, took.count());
  }
  return 2.0 * static_cast<double>(words.size() * sizeof(uint64_t)) / best_s;
}

}  // namespace ebb

// The pieces of a parallel loop follow from its sizes alone.
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <utility>

#include "system/parallel_loop.h"

namespace ebb {
namespace {

using Pieces = std::set<std::pair<int64_t, int64_t>>;

Pieces pieces_of(int num_threads, int64_t n, int64_t grain) {
  ThreadTeam team(num_threads);
  std::mutex mutex;
  Pieces pieces;
  for_each_range(team, n, grain, [&](int64_t begin, int64_t end) {
    std::lock_guard lock(mutex);
    EXPECT_TRUE(pieces.insert({begin, end}).second) << begin;
  });
  return pieces;
}

TEST(ParallelLoop, HasTheSamePiecesForEveryNumberOfThreads) {
  for (const int threads : {1, 2, 3, 8}) {
    EXPECT_EQ(pieces_of(threads, 0, 10), Pieces());
    EXPECT_EQ(pieces_of(threads, 1, 10), (Pieces{{0, 1}}));
    EXPECT_EQ(pieces_of(threads, 10, 10), (Pieces{{0, 10}}));
    EXPECT_EQ(pieces_of(threads, 11, 10), (Pieces{{0, 10}, {10, 11}}));
    EXPECT_EQ(pieces_of(threads, 29, 10), (Pieces{{0, 10}, {10, 20}, {20, 29}}));
    EXPECT_EQ(pieces_of(threads, 1000, 1).size(), 1000u);
  }
}

TEST(ParallelLoop, VisitsEachRowOnce) {
  ThreadTeam team(3);
  std::vector<int> visits(1001);
  for_each_row(team, std::ssize(visits), 7,
               [&](int64_t row) { ++visits[static_cast<size_t>(row)]; });
  EXPECT_EQ(visits, std::vector<int>(visits.size(), 1));
}

}  // namespace
}  // namespace ebb

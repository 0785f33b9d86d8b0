#include <gtest/gtest.h>

#include <cstdio>
#include <thread>

#include "comm/thread_ranks.h"
#include "tests/error_of.h"
#include "tools/rank_reports.h"

namespace ebb::test {
namespace {

using Seconds = std::vector<double>;

TEST(SlowRank, IsNamedOnce) {
  SlowRank slow;
  EXPECT_EQ(slow.add(Seconds{1, 1, 9, 1}), std::nullopt) << "the first step loads kernels";
  EXPECT_EQ(slow.add(Seconds{1, 1, 3, 1.2}), std::nullopt) << "one step may be slow by chance";
  EXPECT_EQ(slow.add(Seconds{1, 1.2, 4, 1}),
            "rank 2 is slow: a micro-batch takes 4 s there and 1 s on the other ranks, which wait "
            "for it");
  EXPECT_EQ(slow.add(Seconds{1, 1, 4, 1}), std::nullopt);
}

TEST(SlowRank, MustBeSlowTwiceInARow) {
  SlowRank slow;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(slow.add(i % 2 == 0 ? Seconds{4, 1} : Seconds{1, 4}), std::nullopt);
    EXPECT_EQ(slow.add(Seconds{1, 2.9}), std::nullopt);
    EXPECT_EQ(slow.add(Seconds{0.001, 0.09}), std::nullopt) << "a short step";
  }
}

TEST(SlowRank, TwoOfFourMayBeSlow) {
  SlowRank slow;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(slow.add(Seconds{1, 1, 4, 3.5}), std::nullopt);
  EXPECT_SAYS(slow.add(Seconds{1, 1, 4, 3.5}).value_or(""), "rank 2 is slow");
}

/// What rank 0 of three prints.
class ThreeRanks {
 public:
  /// `notices`: what the ranks notice in each step.
  std::string printed(const std::vector<std::string>& of_setup,
                      const std::vector<std::vector<std::string>>& notices) {
    ThreadRanks ranks(3, {.timeout_s = 30});
    std::FILE* const file = std::tmpfile();
    std::FILE* const nowhere = std::fopen("/dev/null", "w");
    {
      std::vector<std::jthread> threads;
      for (uint32_t r = 0; r < 3; ++r) {
        threads.emplace_back([&, r] {
          RunProgress progress(r == 0 ? file : nowhere, false, 10);
          RankReports reports(
              &ranks.rank(r), progress,
              of_setup[r].empty() ? std::vector<std::string>{} : std::vector{of_setup[r]});
          for (uint8_t step = 0; step < notices.size(); ++step) {
            if (!notices[step][r].empty()) progress.notice(notices[step][r]);
            EXPECT_EQ(reports.exchange(r == 1 ? step : 0, 1), step) << "the greatest signal";
          }
        });
      }
    }
    std::string text(4096, 0);
    std::rewind(file);
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    std::fclose(nowhere);
    return text;
  }
};

TEST(RankReports, EachNoticeIsPrintedOnceWithItsRank) {
  ThreeRanks ranks;
  EXPECT_EQ(ranks.printed({"", "", ""}, {{"", "", ""}, {"", "", ""}}), "");
  EXPECT_EQ(ranks.printed({"of all", "of all", "of one"}, {{"", "", ""}}), "rank 2: of one\n")
      << "the command has printed those of rank 0";
  EXPECT_EQ(ranks.printed({"", "", ""}, {{"a", "a", "b"}, {"", "c", "c"}, {"", "c", "b"}}),
            "a\nrank 2: b\nrank 1: c\n");
}

}  // namespace
}  // namespace ebb::test

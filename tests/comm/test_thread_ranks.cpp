#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "comm/thread_ranks.h"
#include "system/clock.h"
#include "tests/comm/rank_cases.h"
#include "tests/error_of.h"

namespace ebb {
namespace {

using test::error_of;

// Runs `body` on each rank, and returns the messages of the errors that it throws.
std::vector<std::string> run_threads(ThreadRanks& ranks, const std::function<void(Ranks&)>& body) {
  std::vector<std::string> errors(ranks.size());
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < ranks.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        body(ranks.rank(r));
      } catch (const std::exception& error) {
        errors[r] = error.what();
        ranks.rank(r).fail(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

class ThreadRanksOfSize : public testing::TestWithParam<uint32_t> {
 protected:
  void expect_success(const std::function<void(Ranks&)>& body) {
    ThreadRanks ranks(GetParam());
    EXPECT_EQ(ranks.size(), GetParam());
    for (const std::string& error : run_threads(ranks, body)) EXPECT_EQ(error, "");
  }
};
INSTANTIATE_TEST_SUITE_P(, ThreadRanksOfSize, testing::Values(1, 2, 3, 8));

TEST_P(ThreadRanksOfSize, Exchange) { expect_success(test::check_exchange); }
TEST_P(ThreadRanksOfSize, Share) { expect_success(test::check_share); }
TEST_P(ThreadRanksOfSize, SignalsInARing) { expect_success(test::check_ring); }
TEST_P(ThreadRanksOfSize, ReadsOfThreads) { expect_success(test::check_reads_of_threads); }

TEST(ThreadRanks, SeveralMachines) {
  ThreadRanks ranks(4, {.ranks_per_machine = 2});
  EXPECT_TRUE(ranks.rank(2).is_near(3));
  EXPECT_FALSE(ranks.rank(2).is_near(1));
  for (const std::string& error : run_threads(ranks, test::check_share)) EXPECT_EQ(error, "");
  EXPECT_SAYS(error_of<LogicError>([] { ThreadRanks odd(4, {.ranks_per_machine = 3}); }),
              "the same number of ranks");
}

TEST(ThreadRanks, NumbersItsRanks) {
  ThreadRanks ranks(3);
  for (uint32_t r = 0; r < 3; ++r) {
    EXPECT_EQ(ranks.rank(r).rank(), r);
    EXPECT_EQ(ranks.rank(r).size(), 3u);
  }
  EXPECT_SAYS(error_of<LogicError>([&] { ranks.rank(3); }), "rank 3 of 3");
  EXPECT_SAYS(error_of<LogicError>([] { ThreadRanks none(0); }), "at least one rank");
}

// Two threads of a rank wait for two signals of the other one, which two threads raise.
TEST(ThreadRanks, SeveralThreadsOfARankSignal) {
  ThreadRanks ranks(2);
  uint32_t values[2] = {};  // plain memory: ThreadSanitizer reports a missing order
  run_threads(ranks, [](Ranks& rank) { rank.create_signals(2); });
  std::vector<std::thread> threads;
  for (uint32_t signal = 0; signal < 2; ++signal) {
    threads.emplace_back([&, signal] {
      for (uint32_t i = 1; i <= 200; i += 2) {
        values[signal] = i;
        ranks.rank(0).raise(signal, i);
        ranks.rank(0).wait(1, signal, i + 1);
        EXPECT_EQ(values[signal], i + 1);
      }
    });
    threads.emplace_back([&, signal] {
      for (uint32_t i = 1; i <= 200; i += 2) {
        ranks.rank(1).wait(0, signal, i);
        EXPECT_EQ(values[signal]++, i);
        ranks.rank(1).raise(signal, i + 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ThreadRanks, CollectiveCallsMustAgree) {
  ThreadRanks ranks(3);
  for (const std::string& error : run_threads(ranks, test::check_disagreements)) {
    EXPECT_EQ(error, "");
  }
}

TEST(ThreadRanks, SignalsAreChecked) {
  ThreadRanks ranks(1);
  Ranks& rank = ranks.rank(0);
  EXPECT_SAYS(error_of<LogicError>([&] { rank.raise(0, 1); }), "signal 0 of 0");
  rank.create_signals(2);
  EXPECT_SAYS(error_of<LogicError>([&] { rank.create_signals(2); }), "created once");
  EXPECT_SAYS(error_of<LogicError>([&] { rank.raise(2, 1); }), "signal 2 of 2");
  EXPECT_SAYS(error_of<LogicError>([&] { rank.wait(0, 2, 1); }), "signal 2 of 2");
  EXPECT_SAYS(error_of<LogicError>([&] { rank.wait(1, 0, 1); }), "rank 1 of 1");
  rank.raise(1, 7);
  rank.raise(1, 7);
  EXPECT_SAYS(error_of<LogicError>([&] { rank.raise(1, 6); }), "lowered from 7 to 6");
  rank.wait(0, 1, 7);
  rank.wait(0, 0, 0);
}

TEST(ThreadRanks, AFailureEndsAllWaits) {
  ThreadRanks ranks(4);
  run_threads(ranks, [](Ranks& rank) { rank.create_signals(1); });
  const double start_s = steady_now_s();
  const std::vector<std::string> errors = run_threads(ranks, [](Ranks& rank) {
    std::byte mine[1] = {}, all[4];
    if (rank.rank() == 0) rank.wait(2, 0, 1);
    if (rank.rank() == 1) rank.exchange(mine, all);
    if (rank.rank() == 3) rank.share(100);
    sleep_until(steady_now_s() + 0.1);
    throw Error("out of luck");
  });
  for (const uint32_t r : {0, 1, 3}) EXPECT_EQ(errors[r], "rank 2 failed: out of luck");
  EXPECT_LT(steady_now_s() - start_s, 5);

  // Later waits fail, too, also those whose signal is high enough, and later failures are ignored.
  ranks.rank(1).fail("something else");
  for (uint32_t r = 0; r < 4; ++r) {
    const auto error = error_of<RankLost>([&] { ranks.rank(r).wait(0, 0, 0); });
    EXPECT_STREQ(error.what(), "rank 2 failed: out of luck");
  }
}

TEST(ThreadRanks, ALongMessageIsCut) {
  ThreadRanks ranks(1);
  ranks.rank(0).fail(std::string(5000, 'x'));
  std::byte mine[1] = {}, all[1];
  const auto error = error_of<RankLost>([&] { ranks.rank(0).exchange(mine, all); });
  EXPECT_SAYS(error, "rank 0 failed: " + std::string(900, 'x'));
}

TEST(ThreadRanks, ATimeoutNamesTheRank) {
  ThreadRanks ranks(3, {.timeout_s = 0.2});
  run_threads(ranks, [](Ranks& rank) { rank.create_signals(2); });
  ranks.rank(2).raise(1, 3);
  const double start_s = steady_now_s();
  const auto error = error_of<RankLost>([&] { ranks.rank(0).wait(2, 1, 5); });
  EXPECT_GE(steady_now_s() - start_s, 0.2);
  EXPECT_SAYS(
      error,
      "rank 0 has waited 0.2 s for rank 2, which has not raised signal 1 to 5 (its value is 3)");
  EXPECT_STREQ(error_of<RankLost>([&] { ranks.rank(1).wait(0, 0, 1); }).what(), error.what());
}

TEST(ThreadRanks, ARankThatGetsFurtherIsWaitedFor) {
  ThreadRanks ranks(3, {.timeout_s = 0.5});
  const std::vector<std::string> errors = run_threads(ranks, [](Ranks& rank) {
    rank.create_signals(1);
    if (rank.rank() == 0) return rank.wait(1, 0, 1);
    if (rank.rank() == 1) rank.wait(2, 0, 1);  // gets no further itself
    for (int i = 0; rank.rank() == 2 && i < 15; ++i) {
      sleep_until(steady_now_s() + 0.1);
      rank.progress();
    }
    rank.raise(0, 1);
  });
  EXPECT_EQ(errors, std::vector<std::string>(3, ""));
}

TEST(ThreadRanks, ATimeoutSaysWhatTheRunWaitsFor) {
  ThreadRanks ranks(2, {.timeout_s = 0.2});
  run_threads(ranks, [](Ranks& rank) { rank.create_signals(1); });
  ranks.rank(0).explain_waits([] { return "rank 1 has not finished the backward of h.17"; });
  EXPECT_FALSE(ranks.rank(1).has_failed());
  EXPECT_STREQ(error_of<RankLost>([&] { ranks.rank(0).wait(1, 0, 1); }).what(),
               "rank 1 has not finished the backward of h.17 for 0.2 s");
  EXPECT_TRUE(ranks.rank(1).has_failed());
}

TEST(ThreadRanks, ATimeoutOfAnExchangeNamesTheRank) {
  ThreadRanks ranks(3, {.timeout_s = 0.2});
  const std::vector<std::string> errors = run_threads(ranks, [](Ranks& rank) {
    std::byte mine[1] = {}, all[3];
    rank.exchange(mine, all);
    if (rank.rank() != 1) rank.exchange(mine, all);
  });
  for (const uint32_t r : {0, 2}) {
    EXPECT_SAYS(errors[r], "for rank 1, which has not called exchange() (collective call 2)");
  }
  EXPECT_EQ(errors[1], "");
}

}  // namespace
}  // namespace ebb

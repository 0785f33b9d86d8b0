#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "device/errors.h"
#include "scheduler/turns.h"

namespace ebb {
namespace {

TEST(Turns, GoRound) {
  Turns turns(3);
  std::string order;
  turns.run(3, [&](uint32_t i) {
    for (int step = 0; step < 2; ++step) {
      order += static_cast<char>('a' + i);
      turns.pass(i);
    }
    order += static_cast<char>('A' + i);
  });
  EXPECT_EQ(order, "abcabcABC");
}

TEST(Turns, WhoHasEndedIsLeftOut) {
  Turns turns(4);
  std::string order;
  turns.run(3, [&](uint32_t i) {
    for (uint32_t step = 0; step <= i; ++step) {
      order += static_cast<char>('a' + i);
      turns.pass(i);
    }
  });
  EXPECT_EQ(order, "abcbcc");
}

TEST(Turns, RunAgainAndAgainWithAnyCount) {
  Turns turns(4);
  int sum = 0;
  for (int round = 0; round < 100; ++round) {
    turns.run(static_cast<uint32_t>(round % 5), [&](uint32_t i) {
      turns.pass(i);
      ++sum;
    });
  }
  EXPECT_EQ(sum, 20 * (0 + 1 + 2 + 3 + 4));
}

TEST(Turns, AnExceptionUnwindsEverybody) {
  Turns turns(3);
  int unwound = 0, began = 0;
  struct Count {
    int& number;
    ~Count() { ++number; }
  };
  const auto body = [&](uint32_t i) {
    ++began;
    const Count count{unwound};
    if (i == 1) throw std::runtime_error("the second");
    turns.pass(i);
    ADD_FAILURE() << "went on";
  };
  EXPECT_THROW(turns.run(3, body), std::runtime_error);
  EXPECT_EQ(began, 2) << "the third has not begun";
  EXPECT_EQ(unwound, 2);
  int after = 0;
  turns.run(3, [&](uint32_t) { ++after; });
  EXPECT_EQ(after, 3);
}

/// As somebody whom a limit on processes holds: it does not hold root.
[[noreturn]] void start_more_threads_than_allowed() {
  constexpr uid_t kNobody = 65534;
  const rlimit few = {16, 16};
  if (::setrlimit(RLIMIT_NPROC, &few) != 0 || (::geteuid() == 0 && ::setuid(kNobody) != 0)) {
    std::fputs("no limit can be set", stderr);
    std::exit(1);
  }
  try {
    Turns turns(64);
    std::fputs("no limit holds: of the 64", stderr);
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
  }
  std::exit(1);
}

TEST(TurnsDeathTest, TooManyThreadsAreAnError) {
  EXPECT_EXIT(start_more_threads_than_allowed(), testing::ExitedWithCode(1), "of the 64");
}

}  // namespace
}  // namespace ebb

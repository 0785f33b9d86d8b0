#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cfenv>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "autograd/coroutines.h"
#include "device/errors.h"

namespace ebb {
namespace {

TEST(Coroutines, RunOneAfterTheOther) {
  Coroutines coroutines(3);
  std::string order;
  coroutines.run(3, [&](uint32_t i) {
    for (int step = 0; step < 2; ++step) {
      order += static_cast<char>('a' + i);
      coroutines.yield(i);
    }
    order += static_cast<char>('A' + i);
  });
  EXPECT_EQ(order, "abcabcABC");
}

TEST(Coroutines, AnEndedCoroutineIsSkipped) {
  Coroutines coroutines(4);
  std::string order;
  coroutines.run(3, [&](uint32_t i) {
    for (uint32_t step = 0; step <= i; ++step) {
      order += static_cast<char>('a' + i);
      coroutines.yield(i);
    }
  });
  EXPECT_EQ(order, "abcbcc");
}

TEST(Coroutines, MayRunAgainWithAnotherCount) {
  Coroutines coroutines(4);
  int sum = 0;
  for (int round = 0; round < 100; ++round) {
    coroutines.run(static_cast<uint32_t>(round % 5), [&](uint32_t i) {
      coroutines.yield(i);
      ++sum;
    });
  }
  EXPECT_EQ(sum, 20 * (0 + 1 + 2 + 3 + 4));
}

TEST(Coroutines, AnExceptionUnwindsAllCoroutines) {
  Coroutines coroutines(3);
  int unwound = 0, began = 0;
  struct Count {
    int& number;
    ~Count() { ++number; }
  };
  const auto body = [&](uint32_t i) {
    ++began;
    const Count count{unwound};
    if (i == 1) throw std::runtime_error("the second");
    coroutines.yield(i);
    ADD_FAILURE() << "the coroutine continued after the exception";
  };
  EXPECT_THROW(coroutines.run(3, body), std::runtime_error);
  EXPECT_EQ(began, 2) << "the third must not begin";
  EXPECT_EQ(unwound, 2);
  int after = 0;
  coroutines.run(3, [&](uint32_t) { ++after; });
  EXPECT_EQ(after, 3);
}

TEST(Coroutines, EachBodyHasItsOwnStack) {
  Coroutines coroutines(2);
  coroutines.run(2, [&](uint32_t i) {
    volatile uint32_t deep[100'000];
    for (uint32_t j = 0; j < 100'000; ++j) deep[j] = i + j;
    coroutines.yield(i);
    for (uint32_t j = 0; j < 100'000; ++j) ASSERT_EQ(deep[j], i + j);
  });
}

TEST(Coroutines, BodiesHaveTheRoundingModeAndSignalMaskOfTheCaller) {
  Coroutines coroutines(2);
  const int rounding = std::fegetround();
  sigset_t interrupts, mask;
  sigemptyset(&interrupts);
  sigaddset(&interrupts, SIGUSR1);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &interrupts, &mask), 0);
  std::fesetround(FE_UPWARD);
  coroutines.run(2, [&](uint32_t i) {
    for (int step = 0; step < 2; ++step) {
      sigset_t here;
      pthread_sigmask(SIG_SETMASK, nullptr, &here);
      EXPECT_EQ(sigismember(&here, SIGUSR1), 1);
      EXPECT_EQ(std::fegetround(), FE_UPWARD);
      coroutines.yield(i);
    }
  });
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(rounding);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  coroutines.run(1, [&](uint32_t) { EXPECT_EQ(std::fegetround(), rounding); });
}

TEST(Coroutines, ExceptionsMayBeCaughtBetweenYields) {
  Coroutines coroutines(2);
  int caught = 0;
  coroutines.run(2, [&](uint32_t i) {
    for (int step = 0; step < 3; ++step) {
      try {
        throw static_cast<int>(i);
      } catch (int thrown) {
        caught += thrown == static_cast<int>(i);
      }
      coroutines.yield(i);
    }
  });
  EXPECT_EQ(caught, 6);
}

// Sanitizers need more addresses, and report the fault themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
[[noreturn]] void make_more_stacks_than_allowed() {
  const rlimit few = {size_t{256} << 20, size_t{256} << 20};
  if (::setrlimit(RLIMIT_AS, &few) != 0) std::exit(1);
  try {
    Coroutines coroutines(64);
    std::fputs("no limit holds: of the 64", stderr);
    std::exit(2);
  } catch (const ConfigError& error) {
    std::fputs(error.what(), stderr);
  }
  std::exit(1);
}

// Each frame is larger than a page, and only its first bytes are used.
int nest(int depth) {
  volatile char frame[size_t{256} << 10];
  frame[0] = static_cast<char>(depth);
  return depth == 0 ? frame[0] : nest(depth - 1) + frame[0];
}
void nest_too_deep() {
  Coroutines coroutines(2);
  coroutines.run(2, [&](uint32_t i) {
    coroutines.yield(i);
    if (i == 0) nest(40);  // the stack of the second coroutine has lower addresses
    coroutines.yield(i);
  });
}

TEST(CoroutinesDeathTest, AStackThatIsTooDeepFaults) {
  EXPECT_EXIT(nest_too_deep(), testing::KilledBySignal(SIGSEGV), "");
}

TEST(CoroutinesDeathTest, TooManyStacksAreAnError) {
  EXPECT_EXIT(make_more_stacks_than_allowed(), testing::ExitedWithCode(1), "of 64");
}
#endif

}  // namespace
}  // namespace ebb

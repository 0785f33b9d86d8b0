#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "tools/signals.h"

namespace ebb {
namespace {

void wait_until_pending(const Signals& signals) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (signals.pending() == 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(Signals, TheFirstIsStored) {
  ::signal(SIGHUP, SIG_DFL);
  for (const auto& [signal, code, name] :
       {std::tuple(SIGINT, 130, "Ctrl-C"), std::tuple(SIGTERM, 143, "SIGTERM"),
        std::tuple(SIGHUP, 129, "SIGHUP"), std::tuple(SIGUSR1, 138, "SIGUSR1"),
        std::tuple(SIGUSR2, 140, "SIGUSR2")}) {
    std::string said;
    {
      const Signals signals([&said](const char* text) { said = text; });
      EXPECT_EQ(signals.pending(), 0);
      ::kill(::getpid(), signal);
      wait_until_pending(signals);
      EXPECT_EQ(signals.pending(), signal);
      EXPECT_EQ(signals.exit_code(), code);
    }
    EXPECT_EQ(said, name);
  }
}

TEST(Signals, AnIgnoredHangupStaysIgnored) {
  const auto before = ::signal(SIGHUP, SIG_IGN);  // as nohup does
  {
    const Signals signals([](const char*) {});
    ::kill(::getpid(), SIGHUP);
    ::kill(::getpid(), SIGTERM);
    wait_until_pending(signals);
    EXPECT_EQ(signals.pending(), SIGTERM);
  }
  ::signal(SIGHUP, before);
}

TEST(Signals, TheMaskIsRestored) {
  sigset_t before, after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  {
    const Signals signals([](const char*) {});
  }
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&before, SIGINT), sigismember(&after, SIGINT));
  EXPECT_EQ(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
}

TEST(Signals, ARepetitionWithinTheGracePeriodIsIgnored) {
  std::atomic<int> num_notices = 0;
  {
    const Signals signals([&num_notices](const char*) { ++num_notices; });
    ::kill(::getpid(), SIGTERM);
    wait_until_pending(signals);
    ::kill(::getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(signals.pending(), SIGTERM);
  }
  EXPECT_EQ(num_notices, 1);
}

TEST(SignalsDeathTest, ALaterOneEndsTheProcess) {
  EXPECT_EXIT(
      {
        const Signals signals([](const char*) {}, std::chrono::milliseconds(0));
        ::kill(::getpid(), SIGTERM);
        wait_until_pending(signals);
        ::kill(::getpid(), SIGTERM);
        std::this_thread::sleep_for(std::chrono::seconds(10));
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST(SignalsDeathTest, TheFirstMayEndTheProcess) {
  EXPECT_EXIT(
      {
        const Signals signals([](const char*) {}, std::chrono::seconds(1), [] { return true; });
        ::kill(::getpid(), SIGTERM);
        std::this_thread::sleep_for(std::chrono::seconds(10));
      },
      testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace ebb

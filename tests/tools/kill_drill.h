// Kills a run that saves every step repeatedly, until the run is complete.
#pragma once

#include <signal.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <random>
#include <thread>

#include "tests/tools/checkpoint_runs.h"

namespace ebb::test {

class KillDrill : public CheckpointRuns {
 protected:
  /// Runs are killed at random moments until so many were, then one ends; the log and the state
  /// must be those of a run that nobody killed. The first and the last moment of a run are as
  /// likely as any: `longest` is about the time of a whole run.
  void drill(int num_kills, std::chrono::milliseconds longest, int num_steps) {
    std::mt19937 random(20261121);
    const std::string steps = std::to_string(num_steps);
    int killed = 0, through = 0;
    while (killed < num_kills) {
      EbbProcess process(train({"--steps", steps, "--save", save(), "--save-steps", "1",
                                "--save-keep", "2", "--resume"}),
                         folder_.path());
      std::this_thread::sleep_for(
          std::chrono::microseconds(random() % static_cast<uint32_t>(longest.count() * 1000)));
      process.signal(SIGKILL);
      const Outcome outcome = process.wait();
      ASSERT_TRUE(outcome.exit_code == -SIGKILL || outcome.exit_code == 0) << outcome.err;
      for (const std::string& name : names_saved()) num_rests_ += name.find('.') != name.npos;
      if (outcome.exit_code == 0) {
        ++through;
        expect_same_as(whole_of(steps));
        std::filesystem::remove_all(save());
      } else {
        ++killed;
      }
    }
    succeed(train(
        {"--steps", steps, "--save", save(), "--save-steps", "1", "--save-keep", "2", "--resume"}));
    expect_same_as(whole_of(steps));
    RecordProperty("runs_through", through);
    RecordProperty("rests", num_rests_);
    std::printf("killed %d times, %d runs through before the last, %d rests of unfinished saves\n",
                killed, through, num_rests_);
  }

  /// Of saves that a kill cut short.
  int num_rests() const { return num_rests_; }

 private:
  std::string whole_of(const std::string& steps) {
    const std::string other = path("whole.jsonl");
    if (content_of(other).empty()) succeed(train({"--steps", steps, "--log", other}));
    return other;
  }
  void expect_same_as(const std::string& other) { EXPECT_EQ(log(), whole()) << other; }

  int num_rests_ = 0;
};

}  // namespace ebb::test

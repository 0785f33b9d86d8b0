// Kills a run that saves every step, and resumes it, until it completes.
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
  /// Kills runs at random times until num_kills were killed, then lets one run complete. Its log
  /// and state must be those of an uninterrupted run. `longest` is about the time of a whole run,
  /// so that a kill can hit any part of a run.
  void drill(int num_kills, std::chrono::milliseconds longest, int num_steps) {
    std::mt19937 random(20261121);
    const std::string steps = std::to_string(num_steps);
    int killed = 0, completed = 0;
    while (killed < num_kills) {
      EbbProcess process(train({"--steps", steps, "--save", save(), "--save-steps", "1",
                                "--save-keep", "2", "--resume"}),
                         folder_.path());
      std::this_thread::sleep_for(
          std::chrono::microseconds(random() % static_cast<uint32_t>(longest.count() * 1000)));
      process.signal(SIGKILL);
      const Outcome outcome = process.wait();
      ASSERT_TRUE(outcome.exit_code == -SIGKILL || outcome.exit_code == 0) << outcome.err;
      for (const std::string& name : names_saved()) num_unfinished_ += name.find('.') != name.npos;
      if (outcome.exit_code == 0) {
        ++completed;
        expect_same_as(whole_of(steps));
        std::filesystem::remove_all(save());
      } else {
        ++killed;
      }
    }
    succeed(train(
        {"--steps", steps, "--save", save(), "--save-steps", "1", "--save-keep", "2", "--resume"}));
    expect_same_as(whole_of(steps));
    RecordProperty("runs_completed", completed);
    RecordProperty("unfinished_saves", num_unfinished_);
    std::printf("killed %d runs, %d runs completed before the last, %d unfinished saves\n", killed,
                completed, num_unfinished_);
  }

  /// Returns the number of unfinished saves that kills left.
  int num_unfinished() const { return num_unfinished_; }

 private:
  std::string whole_of(const std::string& steps) {
    const std::string other = path("whole.jsonl");
    if (content_of(other).empty()) succeed(train({"--steps", steps, "--log", other}));
    return other;
  }
  void expect_same_as(const std::string& other) { EXPECT_EQ(log(), whole()) << other; }

  int num_unfinished_ = 0;
};

}  // namespace ebb::test

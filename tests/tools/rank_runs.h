// Helpers of the tests that start several ranks of `ebb train`.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "tests/tools/checkpoint_runs.h"

namespace ebb::test {

class RankRuns : public CheckpointRuns {
 protected:
  /// Four micro-batches a step.
  Arguments train_on(int num_ranks, const Arguments& more = {}) const {
    return train(Arguments{"--ranks", std::to_string(num_ranks), "--gradient-accumulation", "4",
                           "--micro-batch-size", "1"} +
                 more);
  }
  std::string hash_of(const Arguments& arguments) const {
    const Outcome outcome = succeed(arguments);
    const size_t at = outcome.out.find("state_hash ");
    EXPECT_NE(at, std::string::npos) << outcome.out;
    return at == std::string::npos ? "" : outcome.out.substr(at, 27);
  }

  /// The processes of rank 1, 2, ... that a running `ebb` has started.
  static std::vector<pid_t> children_of(pid_t parent) {
    std::vector<pid_t> children;
    const std::filesystem::path tasks = "/proc/" + std::to_string(parent) + "/task";
    std::error_code error;
    for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
      std::ifstream list(task.path() / "children");
      for (pid_t child = 0; list >> child;) children.push_back(child);
    }
    return children;
  }

  /// Waits until the log has the line of a step.
  void wait_for_a_step() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (content_of(log_).empty() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  static void expect_ends(pid_t process) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (::kill(process, 0) == 0 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_NE(::kill(process, 0), 0) << "process " << process << " still runs";
  }

  /// Starts a process as a rank of two, as torchrun does. Its output goes to a folder of its own.
  EbbProcess start_rank(int rank, const Arguments& arguments) const {
    const std::filesystem::path folder = folder_.path() / ("rank" + std::to_string(rank));
    std::filesystem::create_directories(folder);
    const EnvironmentVariable variables[] = {{"RANK", std::to_string(rank)},
                                             {"WORLD_SIZE", "2"},
                                             {"LOCAL_WORLD_SIZE", "2"},
                                             {"MASTER_ADDR", "localhost"},
                                             {"MASTER_PORT", std::to_string(::getpid())}};
    return {arguments, folder};
  }

  /// Rank 0 gets `first`, rank 1 gets `second`.
  Outcome outcome_of_two(const Arguments& first, const Arguments& second) const {
    EbbProcess zero = start_rank(0, first), one = start_rank(1, second);
    EXPECT_EQ(one.wait().err, "") << "only rank 0 writes";
    return zero.wait();
  }

  bool has_checkpoint(int step) const { return std::filesystem::exists(saved(step)); }
};

}  // namespace ebb::test

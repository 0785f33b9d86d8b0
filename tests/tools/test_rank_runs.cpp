// `ebb train --ranks`: processes that train together give the bits of one process, and lose nothing
// when one of them ends.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "tests/tools/checkpoint_runs.h"

namespace ebb::test {
namespace {

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

TEST_F(RankRuns, HaveTheStateAndTheLogOfOne) {
  const Arguments more = {"--dropout", "0.1", "--eval-split", "10%", "--eval-steps", "3"};
  const std::string one = hash_of(train_on(1, more));
  const auto log_of_one = log();
  for (const int num_ranks : {2, 3, 4}) {
    EXPECT_EQ(hash_of(train_on(num_ranks, more)), one);
    EXPECT_EQ(log(), log_of_one);
  }
  EXPECT_NE(hash_of(train_on(2, more + Arguments{"--groups", "2"})), one);
}

TEST_F(RankRuns, OnlyRankZeroWrites) {
  const Outcome outcome = succeed(train_on(3, {"--steps", "2"}));
  EXPECT_SAYS(outcome.err, "3 processes; this one, rank 0, computes 1 of 4 micro-batches");
  const auto count = [&](std::string_view text) {
    size_t num = 0;
    for (size_t at = 0; (at = outcome.err.find(text, at)) != std::string::npos; ++at) ++num;
    return num;
  };
  EXPECT_EQ(count("step 2/2"), 1u) << outcome.err;
}

/// Each rank has a command line of its own.
TEST_F(RankRuns, RanksThatDifferAreRefused) {
  const auto ranks = [&](const Arguments& more) {
    return train(Arguments{"--gradient-accumulation", "4", "--steps", "2"} + more);
  };
  const Outcome same = outcome_of_two(ranks({"--threads", "1", "--groups", "4", "--lr", "3e-4"}),
                                      ranks({"--threads", "2", "--device-memory", "64MiB"}));
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_FAILS(outcome_of_two(ranks({}), ranks({"--lr", "0.001"})), 2,
               "rank 1 has --lr 0.001, rank 0 has --lr 0.0003: all ranks of a run need the same");
  EXPECT_FAILS(outcome_of_two(ranks({"--groups", "2"}), ranks({})), 2,
               "rank 1 has --groups 4, rank 0 has --groups 2");
  const std::string longer = folder_.write("longer.txt", content_of(text_) + "!");
  EXPECT_FAILS(outcome_of_two(ranks({}), ranks({"--data", longer})), 2,
               "rank 1 has data of 706 tokens with hash");
}

TEST_F(RankRuns, TooFewMicroBatchesAreRefused) {
  EXPECT_FAILS(run(train_on(5)), 2,
               "4 micro-batches for 5 ranks: each rank computes at least one; try "
               "--gradient-accumulation 8");
  EXPECT_FAILS(run(train_on(3, {"--groups", "2"})), 2, "try --groups 3");
}

/// Stopped on four ranks, continued on two and then on one.
TEST_F(RankRuns, ResumeOnAnyNumber) {
  const Arguments constant = {"--lr-schedule", "constant"};
  const std::string whole = hash_of(train_on(1, constant));
  succeed(train_on(4, constant + Arguments{"--steps", "3", "--save", save()}));
  succeed(train_on(2, constant + Arguments{"--steps", "5", "--save", save(), "--resume"}));
  EXPECT_TRUE(has_checkpoint(3) && has_checkpoint(5));
  EXPECT_EQ(hash_of(train_on(1, constant + Arguments{"--save", save(), "--resume"})), whole);
}

/// Kills ranks at random, resumes on other numbers of ranks, and ends with the bits of one run.
TEST_F(RankRuns, AKilledRankLosesNoCheckpoint) {
  const Arguments more = {"--steps", "12", "--save", save(), "--save-steps", "1", "--resume"};
  std::mt19937 random(20261128);
  const int numbers[] = {4, 2, 3};
  int num_killed = 0;
  std::set<size_t> victims;
  for (int run = 0; num_killed < 4 && run < 40; ++run) {
    EbbProcess process(train_on(numbers[run % 3], more), folder_.path());
    std::this_thread::sleep_for(std::chrono::milliseconds(300 + random() % 900));
    const std::vector<pid_t> children = children_of(process.id());
    const size_t victim = random() % (children.size() + 1);
    const auto begin = std::chrono::steady_clock::now();
    victim == 0 ? process.signal(SIGKILL) : (void)::kill(children[victim - 1], SIGKILL);
    const Outcome outcome = process.wait();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    if (outcome.exit_code == 0) {
      std::filesystem::remove_all(save());
      continue;
    }
    ++num_killed;
    victims.insert(victim);
    if (victim == 0) {
      EXPECT_EQ(outcome.exit_code, -SIGKILL);
    } else {
      EXPECT_EQ(outcome.exit_code, 1);
      EXPECT_SAYS(outcome.err, "ebb: error: ");
      EXPECT_SAYS(outcome.err, "rank " + std::to_string(victim));
    }
    for (const pid_t child : children) expect_ends(child);
  }
  EXPECT_EQ(num_killed, 4);
  EXPECT_GT(victims.size(), 1u);
  const std::string end = hash_of(train_on(2, more));
  EXPECT_EQ(end, hash_of(train_on(1, {"--steps", "12"})));
}

TEST_F(RankRuns, ASignalToAnyRankStopsAllAndSaves) {
  EbbProcess process(train_on(3, {"--steps", "100000", "--save", save()}), folder_.path());
  std::vector<pid_t> children;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (content_of(log_).empty() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  children = children_of(process.id());
  ASSERT_EQ(children.size(), 2u);
  ::kill(children[1], SIGTERM);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.exit_code, 143) << outcome.err;
  EXPECT_SAYS(outcome.err, "stopped after step ");
  EXPECT_EQ(names_saved().size(), 1u);
}

/// A rank that is stopped ends the run; the message names it.
TEST_F(RankRuns, ARankThatMakesNoProgressEndsTheRun) {
  EbbProcess process(train_on(2, {"--steps", "100000", "--rank-timeout", "6"}), folder_.path());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (content_of(log_).empty() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const std::vector<pid_t> children = children_of(process.id());
  ASSERT_EQ(children.size(), 1u);
  ::kill(children[0], SIGSTOP);
  const auto begin = std::chrono::steady_clock::now();
  std::thread continues([&] {  // so that the parent can wait for it
    std::this_thread::sleep_for(std::chrono::seconds(8));
    ::kill(children[0], SIGCONT);
  });
  const Outcome outcome = process.wait();
  continues.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(12));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_SAYS(outcome.err, "rank 1");
}

}  // namespace
}  // namespace ebb::test

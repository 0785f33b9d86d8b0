// `ebb train --ranks` when something is wrong: no run hangs, the error names the rank, and nothing
// that a checkpoint has is lost.
#include <sys/resource.h>

#include <filesystem>
#include <random>
#include <set>

#include "tests/tools/rank_runs.h"
#include "tools/saved_steps.h"

namespace ebb::test {
namespace {

namespace fs = std::filesystem;

// Under AddressSanitizer a run takes four times as long.
#if defined(__SANITIZE_ADDRESS__)
constexpr int kNumKills = 5;
#else
constexpr int kNumKills = 20;
#endif

class RankFaults : public RankRuns {
 protected:
  /// The hash of a run of one rank that nothing interrupts.
  std::string whole_hash() const {
    return hash_of(train_on(1, {"--steps", "12", "--log", path("whole.jsonl")}));
  }

  std::vector<uint64_t> steps_saved() const { return saved_steps(save()); }

  /// Continues a copy of the newest checkpoint on one rank.
  std::string hash_of_resumed() const {
    const std::string copy = path("copy");
    fs::remove_all(copy);
    fs::remove(path("resumed.jsonl"));
    if (fs::exists(save())) fs::copy(save(), copy, fs::copy_options::recursive);
    return hash_of(train_on(1, {"--steps", "12", "--save", copy, "--save-steps", "12", "--resume",
                                "--log", path("resumed.jsonl")}));
  }
};

/// Kills ranks at random, and resumes on other numbers of ranks.
TEST_F(RankFaults, AKilledRankLosesNoCheckpoint) {
  const std::string whole = whole_hash();
  const Arguments more = {"--steps", "12",          "--save", save(),    "--save-steps",
                          "1",       "--save-keep", "2",      "--resume"};
  const auto first = std::chrono::steady_clock::now();
  EXPECT_EQ(hash_of(train_on(3, more)), whole);
  const std::chrono::duration<double> longest = std::chrono::steady_clock::now() - first;
  fs::remove_all(save());
  std::mt19937 random(20261128);
  const int numbers[] = {4, 2, 3};
  int num_killed = 0, num_resumed = 0;
  std::set<size_t> victims;
  for (int run = 0; num_killed < kNumKills && run < 10 * kNumKills; ++run) {
    EbbProcess process(train_on(numbers[run % 3], more), folder_.path());
    std::this_thread::sleep_for(longest * (0.2 + 0.8 * static_cast<double>(random() % 100) / 100));
    const std::vector<pid_t> children = children_of(process.id());
    const size_t victim = random() % (children.size() + 1);
    const auto begin = std::chrono::steady_clock::now();
    victim == 0 ? process.signal(SIGKILL) : (void)::kill(children[victim - 1], SIGKILL);
    const Outcome outcome = process.wait();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    if (outcome.exit_code == 0) {
      EXPECT_SAYS(outcome.out, whole);
      fs::remove_all(save());
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
    num_resumed += !names_saved().empty();
    EXPECT_EQ(hash_of_resumed(), whole);
  }
  EXPECT_EQ(num_killed, kNumKills);
  EXPECT_GT(victims.size(), 1u);
  EXPECT_GT(num_resumed, kNumKills / 4);
  EXPECT_EQ(hash_of(train_on(2, more)), whole);
}

/// A rank that is stopped ends the run; the message names it.
TEST_F(RankFaults, ARankThatMakesNoProgressEndsTheRun) {
  EbbProcess process(train_on(2, {"--steps", "100000", "--rank-timeout", "6"}), folder_.path());
  wait_for_a_step();
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

/// A rank that is slow again and again only makes the run slower.
TEST_F(RankFaults, ASlowedRankChangesNothing) {
  EbbProcess process(train_on(3, {"--steps", "12", "--rank-timeout", "6"}), folder_.path());
  wait_for_a_step();
  const std::vector<pid_t> children = children_of(process.id());
  ASSERT_EQ(children.size(), 2u);
  for (int i = 0; i < 3; ++i) {
    ::kill(children[1], SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    ::kill(children[1], SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_SAYS(outcome.out, whole_hash());
}

/// A rank can write no more than 1 MiB of a file after some checkpoints.
class FullDiskOfARank : public RankFaults, public testing::WithParamInterface<size_t> {};

TEST_P(FullDiskOfARank, EndsAllRanksAndKeepsTheCheckpoints) {
  const Arguments constant = {"--lr-schedule", "constant"};
  EbbProcess process(train_on(3, constant + Arguments{"--steps", "100000", "--save", save(),
                                                      "--save-steps", "1", "--save-keep", "2"}),
                     folder_.path());
  wait_for_a_step();
  while (steps_saved().size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::vector<pid_t> children = children_of(process.id());
  ASSERT_EQ(children.size(), 2u);
  const pid_t full = GetParam() == 0 ? process.id() : children[GetParam() - 1];
  const rlimit limit = {1 << 20, RLIM_INFINITY};
  ASSERT_EQ(::prlimit(full, RLIMIT_FSIZE, &limit, nullptr), 0);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_SAYS(outcome.err, "File too large");
  EXPECT_SAYS(outcome.err, "is not saved, earlier checkpoints are unchanged");
  EXPECT_SAYS(outcome.err, GetParam() == 0 ? "ebb: error: step-" : "ebb: error: rank 2 failed");
  for (const pid_t child : children) expect_ends(child);
  for (const std::string& name : names_saved()) {
    EXPECT_EQ(name.find('.'), std::string::npos) << "an unfinished checkpoint: " << name;
  }
  ASSERT_GE(steps_saved().size(), 2u);
  const Arguments end = constant + Arguments{"--steps", std::to_string(steps_saved().back() + 2)};
  const std::string resumed = hash_of(train_on(2, end + Arguments{"--save", save(), "--resume"}));
  EXPECT_EQ(resumed, hash_of(train_on(1, end + Arguments{"--log", path("whole.jsonl")})));
}

INSTANTIATE_TEST_SUITE_P(Ranks, FullDiskOfARank, testing::Values(0u, 2u));

/// Rank 1 waits for a kernel, so its process cannot end by itself soon after its peer is lost.
TEST_F(RankFaults, ASignalEndsARankWhosePeerIsLost) {
  EbbProcess process(train_on(2, {"--emulate-compute", "1MFLOP/s", "--save", save()}),
                     folder_.path());
  std::this_thread::sleep_for(std::chrono::seconds(5));  // the first step has begun
  const std::vector<pid_t> children = children_of(process.id());
  ASSERT_EQ(children.size(), 1u);
  ASSERT_EQ(::kill(children[0], SIGKILL), 0);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto begin = std::chrono::steady_clock::now();
  process.signal(SIGTERM);
  const Outcome outcome = process.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  EXPECT_EQ(outcome.exit_code, -SIGTERM) << outcome.err;
  EXPECT_EQ(names_saved().size(), 0u);
}

int count_in(const std::string& text, std::string_view part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

/// Rank 1 has a slow link and more threads than cores.
TEST_F(RankFaults, RankZeroSaysWhatOtherRanksNotice) {
  const Arguments all = {"--gradient-accumulation", "4", "--micro-batch-size", "1", "--steps", "4"};
  const std::string threads = std::to_string(2 * std::thread::hardware_concurrency());
  const Outcome outcome =
      outcome_of_two(train(all), train(all + Arguments{"--link", "4MB/s", "--threads", threads}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(count_in(outcome.err, "rank 1: --threads " + threads), 1) << outcome.err;
  EXPECT_EQ(count_in(outcome.err, "rank 1 is slow: a micro-batch takes"), 1) << outcome.err;
}

}  // namespace
}  // namespace ebb::test

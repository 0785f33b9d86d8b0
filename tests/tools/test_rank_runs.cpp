// `ebb train --ranks`: processes that train together give the bits of one process.
#include <sched.h>
#include <sys/mount.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "io/json_text.h"
#include "tests/tools/rank_runs.h"

namespace ebb::test {
namespace {

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
  EXPECT_SAYS(outcome.err, " s a step predicted for all ranks together, ");
  const auto count = [&](std::string_view text) {
    size_t num = 0;
    for (size_t at = 0; (at = outcome.err.find(text, at)) != std::string::npos; ++at) ++num;
    return num;
  };
  EXPECT_EQ(count("step 2/2"), 1u) << outcome.err;
}

/// The ranks that have a step in the trace, as often as they have one.
std::map<int, int> steps_of_ranks(const std::string& trace) {
  std::map<int, int> steps;
  for (const auto& event : parse_json(content_of(trace))) {
    const std::string name = event["name"];
    if (event["ph"] == "X" && name.starts_with("step ")) ++steps[event["pid"].get<int>()];
  }
  return steps;
}

/// The names of the streams on which a rank does something.
std::set<std::string> streams_of_rank(const std::string& trace, int rank) {
  std::map<int, std::string> names;
  std::set<std::string> used;
  for (const auto& event : parse_json(content_of(trace))) {
    if (event["pid"] != rank || !event.contains("tid")) continue;
    const int stream = event["tid"];
    if (event["name"] == "thread_name") names[stream] = event["args"]["name"];
    if (event["ph"] == "X") used.insert(names[stream]);
  }
  return used;
}

TEST_F(RankRuns, ATraceHasTheStepsOfAllRanks) {
  const std::string trace = path("trace.json");
  succeed(train_on(3, {"--steps", "2", "--trace", trace}));
  EXPECT_EQ(steps_of_ranks(trace), (std::map<int, int>{{0, 2}, {1, 2}, {2, 2}}));
  const std::set<std::string> streams = {"compute", "load",    "store", "update",
                                         "send",    "receive", "steps"};
  for (const int rank : {0, 1, 2}) {
    std::set<std::string> missing;
    std::ranges::set_difference(streams, streams_of_rank(trace, rank),
                                std::inserter(missing, missing.end()));
    EXPECT_EQ(missing, std::set<std::string>{}) << rank;
  }
  const auto one = [&](const Arguments& more) {
    return train(Arguments{"--gradient-accumulation", "4", "--steps", "2"} + more);
  };
  const std::string of_zero = path("of-zero.json"), of_one = path("of-one.json");
  EXPECT_EQ(outcome_of_two(one({"--trace", of_zero}), one({})).exit_code, 0);
  EXPECT_EQ(steps_of_ranks(of_zero), (std::map<int, int>{{0, 2}, {1, 2}}));
  EXPECT_EQ(outcome_of_two(one({}), one({"--trace", of_one})).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(of_one)) << "rank 0 decides";
}

TEST_F(RankRuns, AProfileHasTheTextAndThePageOfEachRank) {
  const Outcome outcome = run_ebb({"profile",
                                   "--preset",
                                   "toy-bytes",
                                   "--data",
                                   text_,
                                   "--seq-length",
                                   "16",
                                   "--steps",
                                   "2",
                                   "--ranks",
                                   "2",
                                   "--gradient-accumulation",
                                   "2",
                                   "--html",
                                   path("page.html"),
                                   "--trace",
                                   path("trace.json"),
                                   "--device",
                                   "host",
                                   "--threads",
                                   "2"},
                                  folder_.path());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_SAYS(outcome.out, "rank 0 of 2: fastest step: compute ");
  EXPECT_SAYS(outcome.out, "rank 1 of 2: fastest step: compute ");
  EXPECT_SAYS(content_of(path("page.html")), "rank 0 of 2: ");
  EXPECT_SAYS(content_of(path("page.rank1.html")), "rank 1 of 2: ");
  EXPECT_EQ(steps_of_ranks(path("trace.json")), (std::map<int, int>{{0, 2}, {1, 2}}));
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
  EXPECT_FAILS(outcome_of_two(ranks({"--group-dtype", "bf16"}), ranks({})), 2,
               "rank 1 has --group-dtype fp32, rank 0 has --group-dtype bf16");
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

/// The header, the log and the checkpoint name the type of the sums. A run that is continued keeps
/// it, and says so if it is given another.
TEST_F(RankRuns, RoundedSumsHaveTheStateAndTheLogOfOne) {
  const Arguments more = {"--lr-schedule", "constant", "--group-dtype", "bf16"};
  const Outcome one = succeed(train_on(1, more));
  EXPECT_SAYS(one.err, "inexact --group-dtype bf16: each sum of a group is rounded to bf16");
  const auto log_of_one = log();
  EXPECT_SAYS(content_of(log_), R"("inexact": "--group-dtype bf16")");
  const std::string hash = hash_of(train_on(1, more));
  succeed(train_on(3, more));
  EXPECT_EQ(log(), log_of_one);
  const Outcome exact = succeed(train_on(1, {"--lr-schedule", "constant"}));
  EXPECT_EQ(exact.err.find("rounded"), std::string::npos);
  EXPECT_EQ(content_of(log_).find("inexact"), std::string::npos);
  EXPECT_NE(hash_of(train_on(1, {"--lr-schedule", "constant"})), hash);

  succeed(train_on(2, more + Arguments{"--steps", "3", "--save", save()}));
  EXPECT_SAYS(content_of(saved(3) + "/training.json"), "group-dtype");
  const std::string copy = path("copy");
  std::filesystem::copy(save(), copy, std::filesystem::copy_options::recursive);
  const Arguments constant = {"--lr-schedule", "constant"};
  EXPECT_EQ(hash_of(train_on(1, constant + Arguments{"--save", save(), "--resume"})), hash);
  const Outcome changed =
      succeed(train_on(1, constant + Arguments{"--save", copy, "--resume", "--group-dtype", "fp32",
                                               "--log", copy + "/log"}));
  EXPECT_SAYS(changed.err,
              "--group-dtype was bf16 and is fp32: the run continues, but its results differ");
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

/// Runs that continue copies of one checkpoint have its id.
TEST_F(RankRuns, CheckpointsHaveTheBytesOfOneRank) {
  const Arguments constant = {"--lr-schedule", "constant"};
  succeed(train_on(1, constant + Arguments{"--steps", "2", "--save", save()}));
  std::string weights, state;
  for (const int num_ranks : {1, 2, 3, 4}) {
    const std::string copy = path("copy" + std::to_string(num_ranks));
    std::filesystem::copy(save(), copy, std::filesystem::copy_options::recursive);
    succeed(train_on(num_ranks, constant + Arguments{"--steps", "5", "--save-steps", "1", "--save",
                                                     copy, "--resume", "--log", copy + "/log"}));
    const std::string last = copy + "/step-5";
    if (num_ranks == 1) {
      weights = content_of(last + "/model.safetensors");
      state = content_of(last + "/state.ebb");
      EXPECT_GT(state.size(), size_t{1} << 20);
    }
    EXPECT_TRUE(content_of(last + "/model.safetensors") == weights) << num_ranks << " ranks";
    EXPECT_TRUE(content_of(last + "/state.ebb") == state) << num_ranks << " ranks";
  }
}

/// Rank 1 has another file system at the path of the checkpoints.
TEST_F(RankRuns, RankZeroWritesForARankThatDoesNotSeeTheFiles) {
  std::filesystem::create_directories(save());
  const Arguments arguments = train({"--gradient-accumulation", "4", "--micro-batch-size", "1",
                                     "--steps", "4", "--save-steps", "2", "--save", save()});
  std::unique_ptr<EbbProcess> one;
  std::thread([&] {  // the new mounts are those of this thread and of its child
    if (::unshare(CLONE_NEWNS) != 0) return;
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return;
    if (::mount("tmpfs", save().c_str(), "tmpfs", 0, "size=32m") != 0) return;
    one.reset(new EbbProcess(start_rank(1, arguments)));
  })
      .join();
  if (!one) GTEST_SKIP() << "mounting is not allowed here";
  const Outcome outcome = start_rank(0, arguments).wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(one->wait().exit_code, 0);
  EXPECT_SAYS(outcome.err, "rank 1 does not see '" + save() + "'");
  EXPECT_EQ(names_saved(), (std::vector<std::string>{"step-2", "step-4"}));
  const std::string both = content_of(saved(4) + "/model.safetensors");
  std::filesystem::remove_all(saved(4));
  succeed({"train", "--resume", "--save", save(), "--log", path("resumed.jsonl")});
  EXPECT_TRUE(content_of(saved(4) + "/model.safetensors") == both);
}

/// An error that all ranks throw: they save, and complete the checkpoint before it.
TEST_F(RankRuns, SaveBeforeAnErrorOfBadNumbers) {
  const Outcome lost = run(train_on(2, {"--save", save(), "--lr", "1e30", "--save-steps", "3"}));
  EXPECT_EQ(lost.exit_code, 1) << lost.err;
  EXPECT_SAYS(lost.err, "not a number in 3 steps in a row");
  EXPECT_EQ(names_saved(), (std::vector<std::string>{"step-3", "step-4"}));
}

TEST_F(RankRuns, ASignalToAnyRankStopsAllAndSaves) {
  EbbProcess process(train_on(3, {"--steps", "100000", "--save", save()}), folder_.path());
  wait_for_a_step();
  const std::vector<pid_t> children = children_of(process.id());
  ASSERT_EQ(children.size(), 2u);
  ::kill(children[1], SIGTERM);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.exit_code, 143) << outcome.err;
  EXPECT_SAYS(outcome.err, "stopped after step ");
  EXPECT_EQ(names_saved().size(), 1u);
}

}  // namespace
}  // namespace ebb::test

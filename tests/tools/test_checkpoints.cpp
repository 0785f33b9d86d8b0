// Saving and resuming with the command line.
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "io/json_text.h"
#include "io/safetensors_folder.h"
#include "tests/tools/checkpoint_runs.h"

namespace ebb::test {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class Checkpoints : public CheckpointRuns {
 protected:
  /// Leaves the checkpoints of steps 3 and 6, as after a run that was ended after step 6.
  void train_until_six() const {
    succeed(train({"--save", save(), "--save-steps", "3"}));
    fs::remove_all(saved(8));
  }
  void damage(const std::string& path, uint64_t offset) const {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put('\x55');
  }
  /// Waits until a run that began without a log has completed a step.
  void wait_for_step() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (content_of(log_).find('\n') == std::string::npos &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  /// Runs `ebb`, sends it a signal after its first step, and returns the outcome.
  Outcome stopped(const Arguments& arguments, int signal) const {
    EbbProcess process(arguments, folder_.path());
    wait_for_step();
    process.signal(signal);
    return process.wait();
  }
};

TEST_F(Checkpoints, AreSavedAtTheIntervalAndAtTheEnd) {
  const Outcome outcome = succeed(train({"--save", save(), "--save-steps", "3"}));
  EXPECT_EQ(names_saved(), (Names{"step-3", "step-6", "step-8"}));
  EXPECT_SAYS(outcome.err, "saved '" + saved(8) + "'");
  EXPECT_EQ(log(), whole()) << "saving changed the run";
}

TEST_F(Checkpoints, PathsThatACheckpointCannotStoreAreRefused) {
  const std::string data = path(
      "a\xff"
      "b.txt");
  fs::copy(text_, data);
  const Outcome refused = run(train({"--data", data, "--save", save()}));
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_SAYS(refused.err, "is not UTF-8");
  EXPECT_EQ(refused.err.find("step 1/"), std::string::npos) << refused.err;
  succeed(train({"--data", data}));
}

TEST_F(Checkpoints, AreSavedBeforeAnErrorOfBadNumbers) {
  const Outcome lost = run(train({"--save", save(), "--lr", "1e30"}));
  EXPECT_EQ(lost.exit_code, 1) << lost.err;
  EXPECT_SAYS(lost.err, "not a number in 3 steps in a row");
  EXPECT_EQ(names_saved(), Names{"step-4"});
}

TEST_F(Checkpoints, AreSavedIfTheDataFileShrinks) {
  EbbProcess process(train({"--save", save(), "--steps", "1000000", "--save-steps", "1000000"}),
                     folder_.path());
  wait_for_step();
  fs::resize_file(text_, 10);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_SAYS(outcome.err, "the file shrank from ");
  EXPECT_EQ(names_saved(), Names{"step-" + std::to_string(log().size())});
}

TEST_F(Checkpoints, OldOnesAreRemoved) {
  succeed(train({"--save", save(), "--save-steps", "1", "--save-keep", "2"}));
  EXPECT_EQ(names_saved(), (Names{"step-7", "step-8"}));
}

/// Step 6 ends an epoch. The resumed run continues the log after step 6.
TEST_F(Checkpoints, AResumedRunHasTheSameBitsAndLog) {
  train_until_six();
  const Outcome outcome = succeed({"train", "--resume", "--save", save()});
  EXPECT_SAYS(outcome.out, "2 steps after step 6, ");
  EXPECT_SAYS(outcome.err, "resume: from '" + saved(6) + "', step 6 of 8");
  EXPECT_EQ(log(), whole());
  EXPECT_EQ(names_saved(), (Names{"step-3", "step-6", "step-8"}));
}

TEST_F(Checkpoints, ARunResumedWithinAnEpochOnAnotherScheduleHasTheSameBits) {
  train_until_six();
  fs::remove_all(saved(6));
  const Outcome outcome =
      succeed({"train", "--resume", saved(3), "--threads", "1", "--chunk-size", "384KiB",
               "--recompute", "block", "--update", "wait", "--device-memory", "3500KiB"});
  EXPECT_EQ(outcome.err.find("its results differ"), std::string::npos) << outcome.err;
  EXPECT_EQ(log(), whole());
  EXPECT_EQ(names_saved(), (Names{"step-3", "step-6", "step-8"}))
      << "it saves to the folder of the old checkpoint";
}

TEST_F(Checkpoints, AResumedRunOfOtherSettingsHasTheSameBits) {
  for (const Arguments& more : {Arguments{"--clip", "0"}, Arguments{"--dtype", "fp32"},
                                Arguments{"--dtype", "fp16"}, Arguments{"--dropout", "0.1"}}) {
    succeed(train(more));
    const auto expected = log();
    EXPECT_EQ(expected[0].contains("loss_scale"), more[1] == "fp16");
    if (more[1] == "fp16") {
      EXPECT_EQ(expected[0]["loss_scale"], 65536);
      EXPECT_EQ(expected[0]["skipped_steps"], 0);
    }
    Arguments saving = more;
    saving += {"--save", save(), "--save-steps", "5"};
    succeed(train(saving));
    fs::remove_all(saved(8));
    succeed({"train", "--resume", "--save", save()});
    EXPECT_EQ(log(), expected) << more[0];
    fs::remove_all(save());
  }
}

/// A save makes the delayed updates, so runs are compared that save after the same steps.
TEST_F(Checkpoints, AResumedRunWithDelayedUpdatesHasTheSameBits) {
  const Outcome outcome =
      succeed(train({"--update", "delayed", "--save", save(), "--save-steps", "3"}));
  EXPECT_SAYS(outcome.err, "inexact --update delayed: a gradient is that of weights");
  const auto expected = log();
  EXPECT_EQ(expected[0]["inexact"].get<std::string>(), "--update delayed");
  EXPECT_EQ(expected[0]["loss"], whole()[0]["loss"]);
  EXPECT_NE(expected[1]["loss"], whole()[1]["loss"]);
  fs::remove_all(saved(8));
  succeed({"train", "--resume", "--save", save()});
  EXPECT_EQ(log(), expected);
  fs::remove_all(saved(8));
  const Outcome exact =
      succeed({"train", "--resume", "--save", save(), "--update", "overlap", "--save-steps", "4"});
  EXPECT_SAYS(exact.err, "--save-steps was 3 and is 4: the run continues, but its results");
  EXPECT_SAYS(exact.err, "--update was delayed and is overlap: the run continues, but its results");
  ASSERT_EQ(log().size(), 9u);
  EXPECT_TRUE(log()[5].contains("inexact"));
  EXPECT_FALSE(log()[6].contains("inexact"));
}

TEST_F(Checkpoints, ASignalSavesAndTheRunCanBeResumed) {
  for (const auto& [signal, code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    fs::remove_all(save());
    fs::remove(log_);
    const Outcome outcome = stopped(train({"--save", save(), "--steps", "100000"}), signal);
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    const auto lines = log();
    ASSERT_GE(lines.size(), 2u);
    const int last = lines.back()["steps"];
    EXPECT_EQ(names_saved(), Names{"step-" + std::to_string(last)});
    EXPECT_SAYS(outcome.err, "saved '");
    EXPECT_SAYS(outcome.err, "; to continue: ebb train --resume '" + save() + "'");
    const Outcome again =
        succeed({"train", "--resume", "--save", save(), "--steps", std::to_string(last + 1)});
    EXPECT_EQ(log().size(), static_cast<size_t>(last) + 2);
  }
}

TEST_F(Checkpoints, WithoutACheckpointResumeStartsFromTheBeginning) {
  const Outcome outcome = succeed(train({"--save", save(), "--resume"}));
  EXPECT_SAYS(outcome.err, "has no checkpoint yet, the run starts from the beginning");
  EXPECT_EQ(log(), whole());
}

TEST_F(Checkpoints, AResumedRunThatIsCompleteDoesNothing) {
  succeed(train({"--save", save()}));
  const Outcome again = succeed({"train", "--resume", "--save", save()});
  EXPECT_SAYS(again.err, "has finished (step 8 of 8): give a larger --steps to train more");
  EXPECT_EQ(again.err.find("model   "), std::string::npos) << again.err;
  EXPECT_EQ(log(), whole());
  EXPECT_EQ(names_saved(), Names{"step-8"});
}

TEST_F(Checkpoints, AnEndBeforeTheCheckpointIsRefused) {
  train_until_six();
  const std::string before = content_of(log_);
  EXPECT_FAILS(run({"train", "--resume", "--save", save(), "--steps", "5"}), 2,
               "--resume '" + saved(6) +
                   "': it is at step 6 already, but the run ends after step 5: give --steps "
                   "above 6");
  EXPECT_EQ(content_of(log_), before);
  succeed({"train", "--resume", "--save", save(), "--steps", "6"});
}

TEST_F(Checkpoints, FlagsThatChangeResultsAreReported) {
  train_until_six();
  const Outcome outcome = succeed(
      {"train", "--resume", "--save", save(), "--lr", "1e-3", "--clip", "0.5", "--threads", "1"});
  EXPECT_SAYS(outcome.err,
              "--lr was 0.0003 and is 0.001: the run continues, but its results differ");
  EXPECT_SAYS(outcome.err, "--max-grad-norm was 1 and is 0.5");
  EXPECT_EQ(outcome.err.find("--threads was"), std::string::npos);
  EXPECT_NE(log(), whole());
}

TEST_F(Checkpoints, ADerivedDefaultIsDerivedAgain) {
  train_until_six();
  const std::string changed = "--min-lr was ";
  const Outcome lower =
      succeed({"train", "--resume", "--save", save(), "--steps", "7", "--lr", "1e-5"});
  EXPECT_SAYS(lower.err, changed + "2.9999999999999997e-05 and is 1.0000000000000002e-06");
  // The resumed run was not given --min-lr either, so the default is derived again.
  const Outcome higher =
      succeed({"train", "--resume", "--save", save(), "--steps", "8", "--lr", "1e-3"});
  EXPECT_SAYS(higher.err, changed + "1.0000000000000002e-06 and is 0.0001");
  const Outcome same = succeed({"train", "--resume", "--save", save(), "--steps", "9"});
  EXPECT_EQ(same.err.find(changed), std::string::npos) << same.err;
}

TEST_F(Checkpoints, AGivenFlagIsKeptAndAnErrorSaysThatItIsFromTheCheckpoint) {
  succeed(train({"--save", save(), "--min-lr", "2e-5", "--gradient-dtype", "bf16"}));
  const Arguments resume = {"train", "--resume", "--save", save(), "--steps", "9"};
  Arguments lower = resume, higher = resume;
  lower += {"--lr", "1e-5"};
  higher += {"--lr", "1e-3"};
  EXPECT_FAILS(run(lower), 2,
               "--min-lr '2e-05': allowed is a number from 0 to --lr 1e-05; this value "
               "comes from the checkpoint: --min-lr 2e-05\n");
  EXPECT_EQ(succeed(higher).err.find("--min-lr was"), std::string::npos);
}

TEST_F(Checkpoints, AnErrorThatNamesAnOptionSaysThatItIsFromTheCheckpoint) {
  std::string tokens;
  for (int i = 0; i < 705; ++i) tokens += {static_cast<char>(i * i % 251), '\0'};
  succeed(train({"--save", save(), "--steps", "3", "--data", folder_.write("t.bin", tokens),
                 "--token-type", "u16"}));
  const std::string text = folder_.write("even.txt", content_of(text_) + ".");
  const Outcome outcome = run({"train", "--resume", "--save", save(), "--data", text});
  EXPECT_FAILS(outcome, 2, "--token-type u16: data '" + text + "' is text, not plain tokens: ");
  EXPECT_FAILS(outcome, 2, "; this value comes from the checkpoint: --token-type u16\n");
}

TEST_F(Checkpoints, OtherDataIsReported) {
  train_until_six();
  const std::string other = folder_.write("other.txt", content_of(text_) + "more");
  const Outcome outcome = succeed({"train", "--resume", "--save", save(), "--data", other});
  EXPECT_SAYS(outcome.err, "the data had 705 tokens and now has 709");
}

TEST_F(Checkpoints, AnotherSplitOfAStepContinuesAtTheSameSample) {
  train_until_six();
  succeed({"train", "--resume", "--save", save(), "--gradient-accumulation", "1"});
  const auto lines = log();
  EXPECT_EQ(lines[6]["tokens_seen"], (6 * 8 + 4) * 32);
  EXPECT_EQ(lines[6]["epoch"], 2);
}

TEST_F(Checkpoints, TheConfigurationFileCanBeUsedAlone) {
  succeed(train({"--save", save(), "--warmup-ratio", "0.3", "--recompute", "block"}));
  const auto expected = log();
  fs::rename(saved(8), path("kept"));
  succeed({"train", "--config", path("kept/train.toml")});
  EXPECT_EQ(log(), expected);
}

TEST_F(Checkpoints, DamagedOnesAreRefusedByName) {
  train_until_six();
  const std::string state = saved(6) + "/state.ebb", before = content_of(log_);
  damage(state, fs::file_size(state) - 77);
  EXPECT_FAILS(run({"train", "--resume", "--save", save()}), 2, "'" + state + "' at byte ");
  EXPECT_EQ(content_of(log_), before) << "the log must not be cut if the run is not resumed";
  damage(saved(6) + "/training.json", 5);
  EXPECT_FAILS(run({"train", "--resume", "--save", save()}), 2, saved(6) + "/training.json");
  fs::remove_all(saved(6));
  succeed({"train", "--resume", "--save", save()});
  EXPECT_EQ(log(), whole());
}

TEST_F(Checkpoints, OtherModelsAreRefused) {
  train_until_six();
  EXPECT_FAILS(run({"train", "--resume", "--save", save(), "--dtype", "fp32"}), 2, "--dtype bf16");
  EXPECT_FAILS(
      run({"train", "--resume", "--save", save(), "--preset", "gpt-6x384-bytes"}), 2,
      "continues a model of 858880 parameters, and --preset 'gpt-6x384-bytes' has 11139072");
}

/// Otherwise a later --resume would load a checkpoint of another run.
TEST_F(Checkpoints, AFolderIsForOneRun) {
  train_until_six();
  EXPECT_FAILS(run(train({"--save", save()})), 2, "its newest checkpoint is step-6");
  EXPECT_FAILS(run({"train", "--resume", saved(3)}), 2, "its newest checkpoint is step-6");
  EXPECT_EQ(names_saved(), (Names{"step-3", "step-6"}));
  const std::string first = content_of(log_);
  succeed({"train", "--resume", saved(3), "--save", path("elsewhere"), "--log", log_});
  EXPECT_EQ(log(), whole());
  EXPECT_EQ(content_of(log_ + ".1"), first) << "the last lines of the first run must be kept";
}

/// A run resumed in another folder, or from a copy of the folder, must not change the files of the
/// first run.
TEST_F(Checkpoints, AnotherRunDoesNotChangeLogAndTrace) {
  const std::string trace = path("trace.json");
  succeed(train({"--save", save(), "--save-steps", "3", "--trace", trace}));
  const std::string log_before = content_of(log_), trace_before = content_of(trace);
  fs::copy(save(), path("copy"), fs::copy_options::recursive);
  fs::remove_all(path("copy/step-8"));
  for (const Arguments& other :
       {Arguments{saved(3), "--save", path("branch"), "--lr", "1e-3"}, Arguments{path("copy")}}) {
    Arguments arguments = {"train", "--resume"};
    arguments += other;
    const Outcome outcome = succeed(arguments);
    EXPECT_SAYS(outcome.err, "the log '" + log_ +
                                 "' is not continued, because this run saves to "
                                 "another folder; give --log FILE for a new one");
    EXPECT_SAYS(outcome.err, "the trace '" + trace + "' is not continued");
    EXPECT_EQ(content_of(log_), log_before);
    EXPECT_EQ(content_of(trace), trace_before);
  }
  EXPECT_EQ(content_of(path("branch/step-8/train.toml")).find("log"), std::string::npos);
  fs::remove_all(saved(8));
  succeed({"train", "--resume", "--save", save()});
  EXPECT_EQ(log(), whole());
  EXPECT_EQ(content_of(trace + ".1"), trace_before) << "it contains the first steps";
}

TEST_F(Checkpoints, AnotherLogIsKept) {
  succeed(train());
  const std::string first = content_of(log_);
  const Outcome outcome = succeed(train({"--seed", "2"}));
  EXPECT_SAYS(outcome.err, "the old file '" + log_ + "' is renamed to '" + log_ + ".1'");
  EXPECT_EQ(content_of(log_ + ".1"), first);
  EXPECT_EQ(log().size(), 9u);
}

TEST_F(Checkpoints, AFolderIsForOneProcess) {
  EbbProcess process(train({"--save", save(), "--steps", "100000"}), folder_.path());
  wait_for_step();
  const TemporaryFolder other;
  const Outcome outcome =
      run_ebb(train({"--save", save(), "--log", path("second.jsonl")}), other.path());
  EXPECT_FAILS(outcome, 2, "another run saves there now");
}

TEST_F(Checkpoints, AreSavedIfTheModelFolderIsRemoved) {
  succeed(train({"--save", save()}));
  const std::string model = path("model");
  fs::rename(saved(8), model);
  fs::remove(log_);
  EbbProcess process({"train", "--model", model, "--data", text_, "--seq-length", "32", "--log",
                      log_, "--save", save(), "--steps", "100000"},
                     folder_.path());
  wait_for_step();
  fs::remove_all(model);
  process.signal(SIGTERM);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.exit_code, 128 + SIGTERM) << outcome.err;
  ASSERT_EQ(names_saved().size(), 1u) << outcome.err;
  EXPECT_SAYS(content_of(save() + "/" + names_saved()[0] + "/config.json"), "GPT2LMHeadModel");
}

/// The bytes of the weights do not depend on where the run was interrupted.
TEST_F(Checkpoints, StoreTheWeightsAsSafetensors) {
  succeed(train({"--save", save(), "--save-steps", "3"}));
  const std::string weights = content_of(saved(8) + "/model.safetensors");
  const SafetensorsFolder folder(saved(8));
  for (const LocatedTensor& tensor : folder.tensors()) {
    EXPECT_EQ(tensor.stored->type, StoredType::BF16);
  }
  EXPECT_NE(folder.find("transformer.wte.weight"), nullptr);
  EXPECT_SAYS(content_of(saved(8) + "/config.json"), "GPT2LMHeadModel");
  fs::remove_all(saved(8));
  succeed({"train", "--resume", "--save", save()});
  EXPECT_TRUE(content_of(saved(8) + "/model.safetensors") == weights);
  EXPECT_FALSE(content_of(saved(3) + "/model.safetensors") == weights);
}

TEST_F(Checkpoints, StoreOnlyWeightsInAnotherTypeIfRequested) {
  succeed(train({"--save", save(), "--save-weights-only", "--save-dtype", "fp32"}));
  const SafetensorsFolder folder(saved(8));
  for (const LocatedTensor& tensor : folder.tensors()) {
    EXPECT_EQ(tensor.stored->type, StoredType::F32);
  }
  EXPECT_FALSE(fs::exists(saved(8) + "/state.ebb"));
  EXPECT_FAILS(run({"train", "--resume", "--save", save()}), 2, "it has only weights");
}

TEST_F(Checkpoints, InvalidFlagsAreErrors) {
  EXPECT_FAILS(run(train({"--resume"})), 2, "--resume without a folder");
  EXPECT_FAILS(run(train({"--resume", path("none")})), 2, "No such file or directory");
  EXPECT_FAILS(run(train({"--resume", folder_.path().string()})), 2, "--resume '");
  EXPECT_FAILS(run(train({"--save-steps", "2"})), 2, "--save-steps needs --save");
  EXPECT_FAILS(run(train({"--save-dtype", "fp32"})), 2, "--save-dtype needs --save");
  EXPECT_FAILS(run(train({"--save-weights-only"})), 2, "--save-weights-only needs --save");
  EXPECT_FAILS(run(train({"--save-keep", "2"})), 2, "--save-keep needs --save");
  EXPECT_FAILS(run(train({"--save", save(), "--save-keep", "0"})), 2, "--save-keep '0'");
  EXPECT_FAILS(run(train({"--save", text_})), 2, "it is no folder");
}

/// A second copy of the state would take 131 MiB.
TEST_F(Checkpoints, SavingTakesLittleMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer takes more memory than saving";
#endif
  const auto peak = [this](const Arguments& more) {
    Arguments arguments = {"train",
                           "--preset",
                           "gpt-6x384-bytes",
                           "--data",
                           text_,
                           "--device",
                           "host",
                           "--seq-length",
                           "16",
                           "--micro-batch-size",
                           "1",
                           "--steps",
                           "3",
                           "--log",
                           log_,
                           "--threads",
                           "2",
                           "--chunk-size",
                           "4MiB"};
    arguments += more;
    succeed(arguments);
    std::string text = content_of(log_);
    text.pop_back();
    return parse_json(text.substr(text.rfind('\n') + 1))["peak_rss_bytes"].get<double>();
  };
  const double without = peak({});
  const double with = peak({"--save", save(), "--save-steps", "1", "--save-keep", "1"});
  EXPECT_GT(fs::file_size(saved(3) + "/state.ebb"), 100u << 20);
  EXPECT_LT(with - without, 16 << 20);
}

}  // namespace
}  // namespace ebb::test

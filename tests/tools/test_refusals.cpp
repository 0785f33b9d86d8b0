// Errors of the command line: exit codes and messages of the built program.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tests/tools/command_line.h"

namespace ebb {
namespace {

TEST_F(CommandLineTest, BudgetsThatAreTooSmallAreRefusedWithOnesThatWork) {
  for (const char* mode : {"--dry-run", "--seed=1"}) {
    EXPECT_FAILS(run_train({mode, "--device-memory", "300KiB"}), 3, "MiB");
    EXPECT_FAILS(run_train({mode, "--host-memory", "1MiB"}), 3, "MiB");
  }
}

/// Standard output is a full disk. The error goes to stderr, once.
TEST_F(CommandLineTest, ResultsThatCannotBeWrittenAreAnError) {
  const std::string err = (folder_.path() / "err").string();
  const std::string toy = std::string("--preset ") + kToy + " --seq-length 32 --threads 2 ";
  const std::string data = "--data " + text_ + " --device host --chunk-size 256KiB ";
  for (const std::string& arguments :
       {std::string("--help"), std::string("--version"), std::string("models"),
        std::string("--flags-json"), std::string("plan --json --machine h200 --preset gpt2"),
        "plan --machine h200 " + toy, "train --dry-run " + toy + data,
        "train --steps 1 " + toy + data, "eval --eval-batches 1 " + toy + data,
        std::string("generate --preset toy-bytes --prompt a --max-tokens 2 --device host")}) {
    const std::string command = ebb_binary() + " " + arguments + " > /dev/full 2> " + err;
    const int status = std::system(command.c_str());
    EXPECT_EQ(WEXITSTATUS(status), 1) << arguments;
    const std::string said = content_of(err);
    const std::string expected =
        "ebb: error: cannot write to standard output: No space left on device\n";
    EXPECT_TRUE(said.ends_with(expected)) << arguments << "\n" << said;
    EXPECT_EQ(said.find("error: "), said.rfind("error: ")) << "printed twice: " << said;
  }
}

TEST_F(CommandLineTest, UnknownFlagsAreReportedWithTheNearest) {
  const auto requested = [&](const Arguments& flags, const char* text) {
    EXPECT_FAILS(run_train(flags), 2, text);
  };
  requested({"--micro_batch_size", "2"},
            "--micro_batch_size is not a flag of 'ebb train'; did you mean "
            "--micro-batch-size?");
  requested({"--step=3"}, "--step is not a flag of 'ebb train'; did you mean --steps?");
  requested({"--batch-size", "2"}, "did you mean --micro-batch-size?");
  requested({"--frobnicate"}, "--frobnicate is not a flag of 'ebb train'\n");
  requested({"--seed", "2", "--seed=3"}, "--seed is given twice");
  const std::string config = folder_.write("train.toml", "micro_batch_size = 2\n");
  requested({"--config", config},
            "train.toml:1:1: unknown key 'micro_batch_size'; did you mean "
            "micro-batch-size?");
  EXPECT_FAILS(run({"generate", "--preset", kToy, "--prompt", "--steps", "--max-tokens", "0"}), 2,
               "--max-tokens");  // a value may look like a flag
}

TEST_F(CommandLineTest, OneFileForTwoPurposesIsRefusedBeforeItIsOpened) {
  const std::string before = content_of(text_), folder = folder_.path().string();
  EXPECT_FAILS(run_train({"--log", text_}), 2, "--log '" + text_ + "' would overwrite --data");
  EXPECT_FAILS(run_train({"--trace", folder + "/./text.txt"}), 2, "would overwrite --data");
  std::filesystem::create_hard_link(text_, folder + "/link.txt");
  EXPECT_FAILS(run_train({"--log", folder + "/link.txt"}), 2, "would overwrite --data");
  EXPECT_FAILS(run_train({"--eval-data", folder + "/link.txt", "--log", log_, "--trace",
                          folder + "/../" + folder_.path().filename().string() + "/log.jsonl"}),
               2, "would overwrite --log");
  EXPECT_FAILS(run({"profile", "--preset", kToy, "--data", text_, "--html", text_}), 2, "--html");
  const std::string npy = folder + "/x.npy";
  EXPECT_FAILS(
      run({"eval", "--preset", kToy, "--data", text_, "--logits", npy, "--log-probs", npy}), 2,
      "--log-probs '" + npy + "' would overwrite --logits");
  EXPECT_FAILS(
      run({"plan", "--preset", kToy, "--machine", "h200", "--write-machine", npy, "--html", npy}),
      2, "would overwrite --write-machine");
  EXPECT_EQ(content_of(text_), before);
  EXPECT_FALSE(std::filesystem::exists(log_));
  EXPECT_FALSE(std::filesystem::exists(npy));
  const Outcome nowhere = run_train({"--steps", "1", "--log", "/dev/null", "--trace", "/dev/null"});
  EXPECT_EQ(nowhere.exit_code, 0) << nowhere.err;
}

TEST_F(CommandLineTest, ModelsBeyondTheMachineAreRefused) {
  EXPECT_FAILS(run({"train", "--preset", "gpt3-175b", "--data", text_, "--device", "host",
                    "--micro-batch-size", "1", "--seq-length", "32", "--token-type", "bytes"}),
               3, "GiB");
}

TEST_F(CommandLineTest, UnknownCommandsAndFlagsAreErrors) {
  EXPECT_FAILS(run({}), 2, "a command is missing");
  EXPECT_FAILS(run({"trian"}), 2, "unknown command 'trian'; did you mean train?");
  EXPECT_FAILS(run_train({"--bogus"}), 2, "--bogus");
  EXPECT_FAILS(run_train({"--num-layers", "2"}), 2, "--num-layers");
  EXPECT_FAILS(run({"models", "--bogus"}), 2, "--bogus");
  EXPECT_FAILS(run({"devices", "extra"}), 2, "'extra' belongs to no flag");
}

TEST_F(CommandLineTest, TheFirstValueWithoutAFlagIsNamed) {
  EXPECT_FAILS(run({"generate", "tuned", "hello"}), 2, "'tuned' belongs to no flag");
  EXPECT_FAILS(run({"generate", "--model", "tuned", "--prompt", "one", "two"}), 2,
               "'two' belongs to no flag");
  EXPECT_FAILS(run_train({"--resume", "one", "two"}), 2, "'two' belongs to no flag");
  EXPECT_FAILS(run({"generate", "--chat", "one"}), 2, "'one' belongs to no flag");
  const Outcome two_files = run({"train", "--preset", kToy, "--data", text_, text_, "--dry-run",
                                 "--seq-length", "32", "--device", "host"});
  EXPECT_EQ(two_files.exit_code, 0) << two_files.err;
}

TEST_F(CommandLineTest, AFailedRunLeavesNoFolder) {
  const std::string save = (folder_.path() / "saves").string();
  EXPECT_FAILS(run_train({"--save", save, "--device-memory", "1KiB"}), 3, "does not fit");
  EXPECT_FALSE(std::filesystem::exists(save));
  std::filesystem::create_directory(save);
  EXPECT_FAILS(run_train({"--save", save, "--device-memory", "1KiB"}), 3, "does not fit");
  EXPECT_TRUE(std::filesystem::exists(save)) << "the user made it";
}

TEST_F(CommandLineTest, MissingAndEmptyValuesAreRefusedByName) {
  EXPECT_FAILS(run_train({"--seed"}), 2, "--seed: its value is missing: --seed N [1]");
  EXPECT_FAILS(run_train({"--seed", "--steps", "1"}), 2, "--seed: its value is missing");
  EXPECT_FAILS(run_train({"--resume", ""}), 2, "--resume '': allowed is a path, or --resume");
  EXPECT_FAILS(run_train({"--resume="}), 2, "--resume '': allowed is a path, or --resume");
  EXPECT_FAILS(run({"train", "--preset", "", "--model", "m", "--data", text_}), 2, "--preset ''");
}

TEST_F(CommandLineTest, FlagsOfOtherCommandsAreNamed) {
  EXPECT_FAILS(run({"plan", "--preset", kToy, "--steps", "3"}), 2,
               "--steps is not a flag of 'ebb plan'; it is a flag of `ebb train`, `ebb profile`");
  const std::string file = folder_.write("plan.toml", "steps = 3\n");
  EXPECT_FAILS(run({"plan", "--preset", kToy, "--config", file}), 2,
               "unknown key 'steps'; it is a flag of `ebb train`");
  EXPECT_FAILS(run_train({"--learning-rate", "1"}), 2, "did you mean --lr?");
  EXPECT_FAILS(run_train({"--ram", "64GB"}), 2, "did you mean --host-memory?");
  EXPECT_FAILS(run_train({"--host-memory", "64G"}), 2, "did you mean 64GiB?");
}

TEST_F(CommandLineTest, ValuesOutOfRangeAreErrors) {
  EXPECT_FAILS(run_train({"--steps", "0"}), 2,
               "--steps '0': allowed is a whole number, at least 1");
  EXPECT_FAILS(run_train({"--micro-batch-size", "-4"}), 2, "--micro-batch-size '-4'");
  EXPECT_FAILS(run_train({"--gradient-accumulation", "0"}), 2, "--gradient-accumulation '0'");
  EXPECT_FAILS(run_train({"--device-memory", "0"}), 2, "--device-memory '0'");
  EXPECT_FAILS(run_train({"--device-memory", "-1MiB"}), 2, "--device-memory '-1MiB'");
  EXPECT_FAILS(run_train({"--lr", "-1"}), 2, "--lr '-1'");
  EXPECT_FAILS(run_train({"--steps", "1", "--epochs", "1"}), 2, "--epochs");
  EXPECT_FAILS(run_train({"--dtype", "fp8"}), 2, "fp32, bf16, fp16");
  EXPECT_FAILS(run({"train", "--preset", "gpt5", "--data", text_}), 2, "gpt5");
  EXPECT_FAILS(run({"train", "--data", text_}), 2, "--preset");
  EXPECT_FAILS(run({"train", "--preset", kToy}), 2, "--data");
}

TEST_F(CommandLineTest, InvalidShapesAreErrors) {
  const Arguments common = {"train", "--preset", kToy, "--data", text_, "--device", "host"};
  const auto with = [&](const Arguments& more) { return run(common + more); };
  EXPECT_FAILS(with({"--seq-length", "4096"}), 2, "--seq-length '4096'");
  EXPECT_FAILS(with({"--seq-length", "0"}), 2, "--seq-length '0'");
  EXPECT_FAILS(with({"--max-seq-length", "-8"}), 2, "--seq-length '-8'");
  EXPECT_FAILS(with({"--chunk-size", "100000"}), 2, "--chunk-size '100000 bytes'");
  EXPECT_FAILS(with({"--chunk-size", "128KiB", "--dtype", "fp32"}), 2,
               "--chunk-size '131072 bytes'");
  EXPECT_FAILS(with({"--dtype", "fp32", "--gradient-dtype", "bf16"}), 2, "--gradient-dtype");
}

TEST_F(CommandLineTest, UnusableDataIsRefused) {
  const auto with_data = [this](const std::string& path, Arguments more = {}) {
    more.insert(more.begin(), {"train", "--preset", kToy, "--device", "host", "--seq-length", "32",
                               "--data", path});
    return run(more);
  };
  EXPECT_FAILS(with_data("/nonexistent/text"), 2, "/nonexistent/text");
  EXPECT_FAILS(with_data("/nonexistent/text", {"--tokenizer", "train:300"}), 2,
               "cannot open data '/nonexistent/text'");
  EXPECT_FAILS(with_data(text_ + "s"), 2, "No such file or directory; did you mean " + text_ + "?");
  EXPECT_FAILS(with_data(folder_.write("empty.txt", "")), 2, "empty.txt' is empty: give text");
  const std::string shorter = folder_.write("short.txt", some_text(128));
  EXPECT_FAILS(with_data(shorter), 2, "has 128 tokens, but one micro-batch needs 129");
  EXPECT_FAILS(
      with_data(shorter), 2,
      "the data fills 3 sequences of 32 tokens: give more data, --micro-batch-size 3 or a");
  EXPECT_FAILS(with_data(folder_.write("shorter.txt", some_text(20))), 2,
               "the data fills 0 sequences of 32 tokens: give more data or a smaller --seq-length");
  const std::string tokens("\x01\x00\x00\x02\x03\x00", 6);  // 1, 512, 3
  EXPECT_FAILS(with_data(folder_.write("tokens.bin", tokens)), 2, "--token-type");
  EXPECT_FAILS(with_data(folder_.write("tokens.bin", tokens), {"--tokenizer", "train:300"}), 2,
               "--data is token files");
  EXPECT_FAILS(with_data(folder_.write("tokens.bin", tokens), {"--token-type", "u16"}), 2,
               "token 512 is outside the model's vocabulary of 256");
  EXPECT_FAILS(with_data(folder_.write("odd.bin", "12345"), {"--token-type", "u16"}), 2, "odd.bin");
  EXPECT_FAILS(run_train({"--eval-data", "/nonexistent/eval"}), 2, "/nonexistent/eval");
  EXPECT_FAILS(run_train({"--eval-data", folder_.write("short.txt", some_text(9))}), 2,
               "--eval-data");
  EXPECT_FAILS(run_train({"--config", "/nonexistent/run.toml"}), 2, "/nonexistent/run.toml");
  if (::geteuid() == 0) return;  // root can read every file
  const std::string secret = folder_.write("secret.txt", some_text(1000));
  ASSERT_EQ(::chmod(secret.c_str(), 0), 0);
  EXPECT_FAILS(with_data(secret), 1, "secret.txt");
}

TEST_F(CommandLineTest, ALogThatCannotBeWrittenEndsTheRunBeforeTheFirstStep) {
  const std::tuple<const char*, int, const char*> rows[] = {
      {"/nonexistent/log", 2, "No such file or directory"},
      {"/dev/full", 1, "No space left on device"}};
  for (const auto& [path, exit_code, why] : rows) {
    const Outcome outcome = run_train({"--log", path});
    EXPECT_FAILS(outcome, exit_code, why);
    EXPECT_SAYS(outcome.err, path);
    EXPECT_EQ(outcome.err.find("step 1/"), std::string::npos) << outcome.err;
  }
}

TEST_F(CommandLineTest, GradientsThatAreNotNumbersEndTheRunWithoutClipping) {
  const Outcome outcome =
      run_train({"--steps", "20", "--lr", "1e30", "--lr-schedule", "constant", "--clip", "0"});
  EXPECT_FAILS(outcome, 1, "gradient");
  EXPECT_EQ(outcome.err.find("update is skipped"), std::string::npos) << outcome.err;
}

TEST_F(CommandLineTest, WithClippingTheyAreSkippedUntilTheThird) {
  const Outcome outcome =
      run_train({"--steps", "20", "--lr", "1e30", "--lr-schedule", "constant", "--log", log_});
  EXPECT_FAILS(outcome, 1, "gradient");
  EXPECT_SAYS(outcome.err, "the update is skipped (2 so far)");
  const auto lines = log_lines();
  ASSERT_FALSE(lines.empty());
  EXPECT_TRUE(lines.back()["grad_norm"].is_null()) << lines.back();
}

}  // namespace
}  // namespace ebb

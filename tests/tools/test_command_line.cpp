// The command line: exit codes, messages, output and log of the built program.
#include <signal.h>

#include <algorithm>

#include "device/device.h"
#include "tests/tools/command_line.h"

namespace ebb {
namespace {

TEST_F(CommandLineTest, MoreThreadsThanCoresGiveTheSameBits) {
  const Outcome two = run_train({"--steps", "1", "--log", log_});
  ASSERT_EQ(two.exit_code, 0) << two.err;
  const nlohmann::json hash = log_lines().back()["state_hash"];
  Arguments arguments = train({"--steps", "1", "--log", log_});
  *(std::find(arguments.begin(), arguments.end(), "--threads") + 1) = "5";
  const Outcome many = run(arguments);
  ASSERT_EQ(many.exit_code, 0) << many.err;
  EXPECT_EQ(log_lines().back()["state_hash"], hash);
}

TEST_F(CommandLineTest, ValuesThatAreProbablyNotMeantAreReported) {
  Arguments arguments = train({"--steps", "1", "--warmup-steps", "5"});
  *(std::find(arguments.begin(), arguments.end(), "--threads") + 1) = "100";
  const Outcome outcome = run(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_SAYS(outcome.err, "--threads 100: this process may use ");
  EXPECT_SAYS(outcome.err, "--warmup-steps 5: the run has 1 steps");
}

TEST_F(CommandLineTest, PrintsItsVersionAndHelp) {
  EXPECT_EQ(run({"--version"}).out, "ebb " EBB_VERSION "\n");
  const Outcome help = run({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* command : {"train", "convert", "models", "devices"}) {
    EXPECT_SAYS(help.out, command);
    const Outcome own = run({command, "--help"});
    EXPECT_EQ(own.exit_code, 0);
    EXPECT_SAYS(own.out, "Usage: ebb ");
  }
}

TEST_F(CommandLineTest, HelpOfACommandHasTwoSpellings) {
  EXPECT_EQ(run({"help", "train"}).out, run({"train", "--help"}).out);
  EXPECT_EQ(run({"help"}).out, run({"--help"}).out);
}

TEST_F(CommandLineTest, SaysThatNothingIsSaved) {
  const std::string text = "nothing is saved; to keep the weights, give --save DIR";
  EXPECT_SAYS(run_train({"--steps", "1"}).err, text);
  const Outcome saves = run_train({"--steps", "1", "--save", (folder_.path() / "s").string()});
  EXPECT_EQ(saves.err.find(text), std::string::npos) << saves.err;
}

TEST_F(CommandLineTest, HelpGroupsFlagsAndShowsDefaults) {
  const std::string help = run({"train", "--help-all"}).out;
  size_t at = 0;
  for (const char* part : {"Model:", "--dtype fp32|bf16|fp16 [bf16]",
                           "Data:", "--micro-batch-size B [4]", "Optimizer:", "--lr X [3e-4",
                           "Memory:", "--chunk-size SIZE [64MiB]", "Output:", "--log FILE"}) {
    const size_t found = help.find(part, at);
    ASSERT_NE(found, std::string::npos) << part << " is missing or out of order in\n" << help;
    at = found;
  }
}

/// --help has the flags that most runs need, and says where the others are.
TEST_F(CommandLineTest, HelpOfTrainIsShort) {
  const std::string help = run({"train", "--help"}).out, all = run({"train", "--help-all"}).out;
  EXPECT_LT(std::count(help.begin(), help.end(), '\n'), 50) << help;
  EXPECT_GT(std::count(all.begin(), all.end(), '\n'), 80) << all;
  for (const char* flag : {"--help-all", "--config", "--preset", "--data", "--resume"}) {
    EXPECT_SAYS(help, flag);
  }
  EXPECT_EQ(help.find("--beta1"), std::string::npos) << help;
  for (const std::string& text : {help, all}) {
    EXPECT_SAYS(text, "% of bound");
    EXPECT_SAYS(text, "stall");
  }
  EXPECT_SAYS(run({"profile", "--help"}).out, "--beta1");
}

TEST_F(CommandLineTest, ListsModelsAndDevices) {
  const Outcome models = run({"models"});
  EXPECT_EQ(models.exit_code, 0);
  for (const char* name :
       {kToy, "gpt-6x384", "gpt2-bytes", "gpt2 ", "gpt2-xl", "llama-3.1-405b", "bert-large"}) {
    EXPECT_SAYS(models.out, name);
  }
  const Outcome devices = run({"devices"});
  EXPECT_EQ(devices.exit_code, 0);
  for (const char* part :
       {"CPU", "cores", "instructions", "NUMA", "memory", "cgroup", "memlock", "GB/s", "CUDA"}) {
    EXPECT_SAYS(devices.out, part);
  }
}

TEST_F(CommandLineTest, TrainsAndWritesItsLog) {
  const Outcome outcome =
      run_train({"--steps", "3", "--gradient-accumulation", "2", "--eval-data", text_,
                 "--eval-steps", "2", "--eval-batches", "1", "--log", log_});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto lines = log_lines();
  ASSERT_EQ(lines.size(), 4u);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(lines[i]["step"], i + 1);
    EXPECT_EQ(lines[i]["epoch"], 0);
    EXPECT_EQ(lines[i]["tokens_seen"], (i + 1) * 2 * 4 * 32);
    EXPECT_NEAR(lines[i]["loss"].get<double>(), 5.5, 1);  // log(256) = 5.5
    EXPECT_GT(lines[i]["grad_norm"].get<double>(), 0);
    EXPECT_GT(lines[i]["step_seconds"].get<double>(), 0);
    EXPECT_EQ(lines[i].contains("eval_loss"), i > 0) << "every second step and the last";
  }
  EXPECT_DOUBLE_EQ(lines[0]["learning_rate"].get<double>(), 3e-4);
  EXPECT_EQ(lines[3]["end"], true);
  EXPECT_EQ(lines[3]["steps"], 3);
  EXPECT_GT(lines[3]["parameters"], 100'000);
  EXPECT_GT(lines[3]["peak_rss_bytes"], 1 << 20);
  const auto hash = lines[3]["state_hash"].get<std::string>();
  EXPECT_EQ(hash.size(), 16u);
  EXPECT_SAYS(outcome.out, "state_hash " + hash);
  EXPECT_SAYS(outcome.err, "step 3/3");
  EXPECT_EQ(outcome.err.find('\r'), std::string::npos)
      << "plain lines if the output is not a terminal";
}

TEST_F(CommandLineTest, TrainsTheLlamaFamilyToTheSameBitsInASmallerBudget) {
  const auto train_llama = [&](Arguments more) {
    Arguments arguments = train({"--steps", "2", "--log", log_});
    *(std::find(arguments.begin(), arguments.end(), "--preset") + 1) = "llama-toy-bytes";
    arguments += more;
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return log_lines();
  };
  const auto all = train_llama({}), tight = train_llama({"--device-memory", "4MiB"});
  ASSERT_EQ(all.size(), 3u);
  EXPECT_NEAR(all[0]["loss"].get<double>(), 5.5, 1);
  EXPECT_EQ(tight.at(2)["state_hash"], all[2]["state_hash"]);
  EXPECT_LT(tight.at(0)["device_peak_bytes"], all[0]["device_peak_bytes"]);
}

TEST_F(CommandLineTest, AMaskedLanguageModelNeedsLabels) {
  EXPECT_FAILS(run({"train", "--preset", "bert-base", "--data", text_}), 2, "labels");
}

TEST_F(CommandLineTest, AnEmulatedStepHasTimesAndNoLosses) {
  const Outcome outcome = run_train({"--emulate-compute", "50GFLOP/s,10GB/s", "--link", "1GB/s",
                                     "--steps", "3", "--eval-data", text_, "--log", log_});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_SAYS(outcome.err, "emulated compute: kernels sleep");
  EXPECT_SAYS(outcome.err, "emulates 0.05 TFLOP/s and 10 GB/s");
  for (const std::string& text : {outcome.out, outcome.err}) {
    for (const char* number : {"loss 0", "loss nan", "  norm 0", "  norm nan"}) {
      EXPECT_EQ(text.find(number), std::string::npos) << text;
    }
  }
  const auto lines = log_lines();
  ASSERT_EQ(lines.size(), 4u);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(lines[i].at("loss").is_null());
    EXPECT_TRUE(lines[i].at("grad_norm").is_null());
    EXPECT_GT(lines[i]["bound_seconds"], 0);
    EXPECT_LE(lines[i]["bound_share"], 1.02);
    EXPECT_GT(lines[i]["loaded_bytes"], 0);
  }
  EXPECT_TRUE(lines[2].at("eval_loss").is_null());
}

TEST_F(CommandLineTest, WithoutAGpuAutoSaysWhyAndCudaIsRefused) {
  const CudaProbe probe = probe_cuda();
  if (!probe.devices.empty()) GTEST_SKIP() << "there is a GPU here";
  Arguments arguments = train({"--dry-run"});
  std::string& device = *(std::find(arguments.begin(), arguments.end(), "host"));
  EXPECT_EQ(run(arguments).err.find("no GPU: "), std::string::npos);
  device = "auto";
  const Outcome chosen = run(arguments);
  EXPECT_EQ(chosen.exit_code, 0);
  EXPECT_SAYS(chosen.out + chosen.err, "; no GPU: " + probe.note);
  device = "cuda";
  EXPECT_FAILS(run(arguments), 2, "--device host");
}

TEST_F(CommandLineTest, EmulatedComputeNeedsTheHostBackend) {
  Arguments arguments = train({"--emulate-compute", "1TFLOP/s"});
  *(std::find(arguments.begin(), arguments.end(), "host")) = "cuda";
  EXPECT_FAILS(run(arguments), 2, "--emulate-compute needs --device host");
  EXPECT_FAILS(run_train({"--emulate-compute", "fast"}), 2,
               "--emulate-compute 'fast': allowed is a rate like");
}

TEST_F(CommandLineTest, TheSeedDecidesTheResult) {
  const auto hash_of = [this](const char* seed) {
    run_train({"--steps", "2", "--seed", seed, "--log", log_});
    return log_lines().back()["state_hash"].get<std::string>();
  };
  const std::string first = hash_of("1");
  EXPECT_EQ(hash_of("1"), first);
  EXPECT_NE(hash_of("2"), first);
}

TEST_F(CommandLineTest, ReadsAConfigurationFile) {
  const std::string config =
      folder_.write("run.toml", "steps = 9\nmicro-batch-size = 1\nlog = \"" + log_ + "\"\n");
  ASSERT_EQ(run_train({"--config", config, "--steps", "2"}).exit_code, 0);
  const auto lines = log_lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1]["tokens_seen"], 64);
}

TEST_F(CommandLineTest, EpochsEndWithTheirLastSample) {
  const std::string text = folder_.write("small.txt", some_text(10 * 32 + 1));
  ASSERT_EQ(run({"train", "--preset", kToy, "--data", text, "--epochs", "2", "--seq-length", "32",
                 "--device", "host", "--chunk-size", "256KiB", "--log", log_})
                .exit_code,
            0);
  const auto lines = log_lines();
  ASSERT_EQ(lines.size(), 6u);  // 20 samples, 4 per step
  EXPECT_EQ(lines[1]["epoch"], 0);
  EXPECT_EQ(lines[3]["epoch"], 1);
}

TEST_F(CommandLineTest, FilesOfAFolderThatAreNotTextAreSkippedAndReported) {
  std::filesystem::create_directory(folder_.path() / "data");
  folder_.write("data/a.txt", some_text(1000));
  const std::string picture = folder_.write("data/b.png", std::string(5000, '\0'));
  const Arguments always = {
      "--preset",     kToy,  "--data",       (folder_.path() / "data").string(),
      "--seq-length", "32",  "--chunk-size", "256KiB",
      "--device",     "host"};
  const auto with = [&](Arguments arguments) { return run(arguments + always); };
  const std::string said = "1 file is not text and left out; the first: '" + picture + "'";
  const Outcome planned = with({"train", "--dry-run"});
  EXPECT_SAYS(planned.out, "1000 tokens (bytes);");
  EXPECT_SAYS(planned.out, said);
  const Outcome trained = with({"train", "--steps", "1"});
  EXPECT_SAYS(trained.err, said);
  const Outcome measured = with({"eval"});
  EXPECT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_SAYS(measured.err, said);
  const Outcome all = with({"train", "--dry-run", "--token-type", "bytes"});
  EXPECT_SAYS(all.out, "6000 tokens (bytes) in 2 files");
  EXPECT_EQ(all.out.find("no text"), std::string::npos) << all.out;
}

TEST_F(CommandLineTest, ADryRunPlansAndWritesNothing) {
  const Outcome outcome = run_train({"--dry-run", "--log", log_});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_SAYS(outcome.out, "smallest that works");
  EXPECT_FALSE(std::filesystem::exists(log_));
}

/// The cache is empty, so the machine is measured first, which takes a second and several threads.
TEST_F(CommandLineTest, ASignalBeforeTheFirstStepEndsTheRun) {
  EbbProcess process(train({"--steps", "1000000", "--log", log_}), folder_.path(), folder_.path());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!process.watches_signals() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  process.signal(SIGINT);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
  EXPECT_SAYS(outcome.err, "before its first step");
  EXPECT_EQ(outcome.err.find("step 1/"), std::string::npos) << outcome.err;
}

/// In `ebb train | tee` the process tee ends. Writes to a closed terminal fail in the same way.
TEST_F(CommandLineTest, AClosedPipeDoesNotEndTheRun) {
  std::string command = ebb_binary();
  for (const std::string& argument : train({"--steps", "3"})) command += " '" + argument + "'";
  const std::string folder = folder_.path().string();
  command = "(" + command + " >" + folder + "/out; echo $? >" + folder + "/code) 2>&1 | true";
  (void)std::system(command.c_str());
  while (content_of(folder_.path() / "code")
             .empty()) {  // the shell waits only for the last process of the pipe
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(content_of(folder_.path() / "code"), "0\n");
  EXPECT_SAYS(content_of(folder_.path() / "out"), "state_hash");
}

TEST_F(CommandLineTest, SignalsEndTheRunAfterItsStep) {
  for (const auto& [signal, code, name] :
       {std::tuple(SIGINT, 130, "Ctrl-C"), std::tuple(SIGTERM, 143, "SIGTERM")}) {
    std::filesystem::remove(log_);
    EbbProcess process(train({"--steps", "1000000", "--log", log_}), folder_.path());
    wait_for_log();
    process.signal(signal);
    const Outcome outcome = process.wait();
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    EXPECT_SAYS(outcome.err, name);
    EXPECT_SAYS(outcome.err, "stopped after step");
    const auto lines = log_lines();
    ASSERT_GE(lines.size(), 2u);
    EXPECT_EQ(lines.back()["end"], true);
    EXPECT_EQ(lines.back()["steps"], lines.size() - 1);
  }
}

}  // namespace
}  // namespace ebb

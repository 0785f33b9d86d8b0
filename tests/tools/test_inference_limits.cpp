// `ebb eval` and `ebb generate` with budgets that are too small, and ended by a signal.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <thread>
#include <tuple>

#include "tests/tools/run_ebb.h"

namespace ebb::tests_of_inference_limits {
namespace {

class InferenceLimits : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  Outcome stopped_late_enough(const Arguments& arguments, int signal) const;

  TemporaryFolder folder_;
};

/// Returns the changes that an error message suggests, each a flag and its value.
std::vector<Arguments> changes_in(const std::string& text) {
  std::vector<Arguments> changes;
  const size_t at = text.find("each of these changes makes it fit");
  std::istringstream lines(text.substr(std::min(at, text.size())));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Arguments change{std::istream_iterator<std::string>(words), {}};
    if (!change.empty() && change[0].starts_with("--")) changes.push_back(change);
  }
  return changes;
}

TEST_F(InferenceLimits, EachSuggestedChangeMakesItFit) {
  const std::string text = folder_.write("text", std::string(400, 'a'));
  const Arguments preset = {"--preset", "gpt-6x384-bytes"};
  const auto with = [&](const std::string& command, const Arguments& more) {
    Arguments all = {command};
    all += preset;
    Arguments given;  // flags that `more` may replace: each flag is given once
    if (command == "eval") given = {"--data", text, "--seq-length", "64"};
    if (command == "generate") given = {"--prompt", "Once ", "--max-tokens", "4"};
    for (size_t i = 0; i < given.size(); i += 2) {
      const bool again = std::ranges::find(more, given[i]) != more.end();
      if (!again) all += {given[i], given[i + 1]};
    }
    all += {"--threads", "1", "--device", "host"};
    return run_ebb(all + more, folder_.path());
  };
  const auto names_bf16 = [](const std::vector<Arguments>& changes) {
    return std::ranges::find(changes, Arguments{"--dtype", "bf16"}) != changes.end();
  };
  for (const char* command : {"eval", "generate"}) {
    for (const Arguments& tight :
         {Arguments{"--device-memory", "8MiB"}, Arguments{"--host-memory", "30MiB"}}) {
      for (const char* dtype : {"fp32", "bf16", "fp16"}) {
        Arguments flags = tight;
        flags += {"--dtype", dtype};
        const Outcome refused = with(command, flags);
        if (refused.exit_code == 0) continue;  // weights of 16 bits fit in host memory
        ASSERT_EQ(refused.exit_code, 3) << refused.err;
        const auto changes = changes_in(refused.err);
        EXPECT_GE(changes.size(), 1u) << refused.err;
        EXPECT_EQ(names_bf16(changes), tight[0] == "--host-memory") << refused.err;
        for (const Arguments& change : changes) {
          Arguments changed = flags;
          for (size_t i = 0; i < change.size(); i += 2) {
            const auto given = std::ranges::find(changed, change[i]);
            if (given == changed.end()) {
              changed += {change[i], change[i + 1]};
            } else {
              given[1] = change[i + 1];
            }
          }
          const Outcome outcome = with(command, changed);
          EXPECT_EQ(outcome.exit_code, 0) << change[0] << " " << change[1] << "\n" << outcome.err;
        }
      }
    }
  }
}

/// Waits until a file of a run contains this text. Returns false after a minute.
bool wait_for(const std::filesystem::path& path, const std::string& part) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (content_of(path).find(part) == std::string::npos) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// Runs an evaluation and sends the signal after its first micro-batch. Repeats with a longer delay
/// until the signal is late enough.
Outcome InferenceLimits::stopped_late_enough(const Arguments& arguments, int signal) const {
  for (auto wait = std::chrono::milliseconds(300);; wait *= 2) {
    std::filesystem::remove(folder_.path() / "stderr");
    EbbProcess process(arguments, folder_.path());
    EXPECT_TRUE(wait_for(folder_.path() / "stderr", "device "));
    std::this_thread::sleep_for(wait);
    process.signal(signal);
    const Outcome outcome = process.wait();
    if (number_of(outcome, "samples") >= 1 || wait > std::chrono::seconds(30)) return outcome;
  }
}

constexpr std::tuple<int, int, const char*> kSignals[] = {{SIGINT, 130, "Ctrl-C"},
                                                          {SIGTERM, 143, "SIGTERM"}};

/// As `ebb train` does: the budget of the user holds.
TEST_F(InferenceLimits, MoreHostMemoryThanIsAvailableIsANotice) {
  const std::string text = folder_.write("text", std::string(400, 'a'));
  for (Arguments command : {Arguments{"eval", "--data", text, "--seq-length", "64"},
                            Arguments{"generate", "--prompt", "Once ", "--max-tokens", "1"}}) {
    command += {"--preset", "gpt-6x384-bytes", "--threads", "1", "--device", "host"};
    for (const auto& [host_memory, is_short] : {std::pair{"1000TiB", true}, {"256MiB", false}}) {
      const Outcome outcome =
          run_ebb(command + Arguments{"--host-memory", host_memory}, folder_.path());
      EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
      EXPECT_EQ(outcome.err.find("the system may end it") != std::string::npos, is_short)
          << outcome.err;
    }
  }
}

TEST_F(InferenceLimits, ASignalEndsAnEvaluationWithItsResultSoFar) {
  std::string text;
  for (int64_t i = 0; i < 4'000'000; ++i) text += static_cast<char>('a' + i * i % 23);
  const Arguments always = {"eval",
                            "--preset",
                            "llama-toy-bytes",
                            "--data",
                            folder_.write("text", text),
                            "--seq-length",
                            "32",
                            "--micro-batch-size",
                            "1",
                            "--device",
                            "host",
                            "--chunk-size",
                            "256KiB",
                            "--threads",
                            "1"};
  for (const auto& [signal, code, name] : kSignals) {
    Arguments stopped = always;
    stopped += {"--log-probs", path("log_probs.npy")};
    const Outcome outcome = stopped_late_enough(stopped, signal);
    ASSERT_EQ(outcome.exit_code, code) << outcome.err;
    EXPECT_SAYS(outcome.err, name);
    EXPECT_SAYS(outcome.err, "stopped after micro-batch ");
    EXPECT_SAYS(outcome.err, "log_probs.npy' is not written");
    EXPECT_FALSE(std::filesystem::exists(path("log_probs.npy")));
    const double num_samples = number_of(outcome, "samples");
    EXPECT_EQ(number_of(outcome, "partial_of_samples"), 124'999);
    ASSERT_GE(num_samples, 1);
    ASSERT_LT(num_samples, 124'999);
    Arguments as_many = always;
    as_many += {"--eval-batches", std::to_string(std::lround(num_samples))};
    const Outcome whole = run_ebb(as_many, folder_.path());
    EXPECT_EQ(outcome.out, whole.out + "partial_of_samples 124999\n");
  }
}

TEST_F(InferenceLimits, ASignalEndsAGenerationAfterItsToken) {
  const Arguments always = {"generate",
                            "--preset",
                            "gpt-6x384-bytes",
                            "--prompt",
                            "Once ",
                            "--temperature",
                            "1",
                            "--device-memory",
                            "24MiB",
                            "--chunk-size",
                            "256KiB",
                            "--threads",
                            "1",
                            "--device",
                            "host",
                            "--dtype",
                            "fp32"};
  for (const auto& [signal, code, name] : kSignals) {
    Arguments stopped = always;
    stopped += {"--max-tokens", "1000"};
    std::filesystem::remove(folder_.path() / "stdout");
    EbbProcess process(stopped, folder_.path());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (content_of(folder_.path() / "stdout").size() < 2) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline)
          << content_of(folder_.path() / "stderr");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    process.signal(signal);
    const Outcome outcome = process.wait();
    ASSERT_EQ(outcome.exit_code, code) << outcome.err;
    EXPECT_SAYS(outcome.err, name);
    const size_t num_tokens = outcome.out.size() - 1;
    EXPECT_LT(num_tokens, 1000u);
    const std::string said = "stopped after token " + std::to_string(num_tokens) + " of 1000";
    EXPECT_SAYS(outcome.err, said);
    Arguments as_many = always;
    as_many += {"--max-tokens", std::to_string(num_tokens)};
    EXPECT_EQ(outcome.out, run_ebb(as_many, folder_.path()).out);
  }
}

}  // namespace
}  // namespace ebb::tests_of_inference_limits

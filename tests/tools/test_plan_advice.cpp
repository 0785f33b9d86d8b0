// The command `ebb plan`: the changes that it suggests work.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/tools/plan_command.h"
#include "tools/advice.h"

namespace ebb::tests_of_plan_advice {
namespace {

using Json = nlohmann::json;

/// Returns the arguments with the flags of a change, which replace the same flags.
Arguments changed(Arguments arguments, const std::string& change) {
  std::istringstream words(change);
  for (std::string flag, value; words >> flag >> value;) {
    const auto given = std::ranges::find(arguments, flag);
    if (given == arguments.end()) {
      arguments += {flag, value};
    } else {
      given[1] = value;
    }
  }
  return arguments;
}

/// Returns the changes of a table, from the last column of each row.
Arguments changes_in(const std::string& text) {
  Arguments changes;
  std::istringstream lines(text.substr(std::min(text.find("the cheapest changes"), text.size())));
  for (std::string line; std::getline(lines, line);) {
    if (const size_t at = line.find("--"); at != std::string::npos) {
      changes.push_back(line.substr(at));
    }
  }
  return changes;
}

TEST_F(PlanCommand, AdvisesChangesThatFit) {
  const Arguments too_much = {"--recompute",     "none", "--activations", "device",
                              "--device-memory", "12GiB"};
  const Json refused = plan_json(kLarge + too_much, 3);
  EXPECT_FALSE(refused["fits"].get<bool>());
  ASSERT_GE(refused["changes"].size(), 3u);
  double before = 1e30;
  for (const Json& change : refused["changes"]) {
    EXPECT_LE(change["tokens_per_second"], before) << "the cheapest change comes first";
    before = change["tokens_per_second"];
    const Json planned = plan_json(changed(kLarge + too_much, change["change"]));
    EXPECT_NEAR(planned["tokens_per_second"].get<double>(), before, 1e-3 * before)
        << change["change"];
  }
}

TEST_F(PlanCommand, TheSuggestedHostMemoryIsTheSmallestThatWorks) {
  const Arguments settings = {"--preset",
                              "gpt3-13b",
                              "--machine",
                              "rtx4090",
                              "--micro-batch-size",
                              "2",
                              "--gradient-accumulation",
                              "2"};
  const Json refused = plan_json(settings, 3);
  ASSERT_EQ(refused["changes"].size(), 1u) << refused;
  const std::string change = refused["changes"][0]["change"];
  ASSERT_TRUE(change.starts_with("--host-memory ") && change.ends_with("MiB")) << change;
  const uint64_t least = std::stoull(change.substr(14));
  plan_json(settings + Arguments{"--host-memory", std::to_string(least) + "MiB"});
  plan_json(settings + Arguments{"--host-memory", std::to_string(least - 1) + "MiB"}, 3);
  const auto says_host_memory_is_short = [&](const std::string& host_memory) {
    const std::string text = plan(settings + Arguments{"--host-memory", host_memory}).out;
    return text.find("that works, with more host memory, is") != std::string::npos;
  };
  EXPECT_TRUE(says_host_memory_is_short(std::to_string(least) + "MiB"));
  EXPECT_FALSE(says_host_memory_is_short("1TiB"));
}

/// The planner chooses recomputation itself. It is suggested only if a flag has fixed it.
TEST_F(PlanCommand, TrainSuggestsOnlyChangesThatWork) {
  const std::string data = folder_.write("text", std::string(40000, 'x'));
  const Arguments run_it = Arguments{"train", "--data", data, "--eval-data", data, "--dry-run"};
  for (const Arguments& tight : {Arguments{"--device-memory", "1MiB"},
                                 Arguments{"--device-memory", "1MiB", "--recompute", "none"},
                                 Arguments{"--host-memory", "5MiB"},
                                 Arguments{"--host-memory", "5MiB", "--device-memory", "4MiB"}}) {
    const Outcome refused = run(run_it + kToy + tight);
    ASSERT_EQ(refused.exit_code, 3) << refused.out << refused.err;
    const Arguments changes = changes_in(refused.err);
    EXPECT_GE(changes.size(), 1u) << refused.err;
    for (const std::string& change : changes) {
      const Outcome outcome = run(changed(run_it + kToy + tight, change));
      EXPECT_EQ(outcome.exit_code, 0) << change << "\n" << outcome.err;
      EXPECT_TRUE(tight.size() > 2 || change.find("--recompute") == std::string::npos) << change;
    }
    EXPECT_EQ(refused.err.find("try "), std::string::npos) << refused.err;
  }
}

/// An evaluation has more micro-batches than a step, and their inputs are on the device too.
TEST_F(PlanCommand, SuggestedChangesIncludeTheMemoryOfTheEvaluation) {
  const std::string data = folder_.write("text", std::string(400'000, 'x'));
  const Arguments run_it = {"train",        "--data",    data,
                            "--eval-data",  data,        "--eval-batches",
                            "150",          "--dry-run", "--device-memory",
                            "1MiB",         "--preset",  "toy-bytes",
                            "--chunk-size", "256KiB",    "--seq-length",
                            "256",          "--device",  "host"};
  const Outcome refused = run(run_it);
  ASSERT_EQ(refused.exit_code, 3) << refused.err;
  const Arguments changes = changes_in(refused.err);
  EXPECT_GE(changes.size(), 1u) << refused.err;
  for (const std::string& change : changes) {
    const Outcome outcome = run(changed(run_it, change));
    EXPECT_EQ(outcome.exit_code, 0) << change << "\n" << outcome.err;
  }
}

/// fp16 takes 16 bytes of host memory for each parameter, bf16 takes 14.
TEST_F(PlanCommand, AdvisesBf16IfFp16NeedsTooMuchHostMemory) {
  // Other schedules could take less host memory, so that fp16 would fit, too.
  const Arguments roomy = {"--preset",     "toy-bytes", "--chunk-size", "256KiB",
                           "--seq-length", "32",        "--machine",    "rtx4090",
                           "--recompute",  "layer",     "--update",     "wait"};
  const auto least = plan_json(roomy)["smallest_device_bytes"].get<uint64_t>();
  // With this device memory no state can be on the device.
  const Arguments toy = roomy + Arguments{"--device-memory", std::to_string(least)};
  const Arguments fp16 = toy + Arguments{"--dtype", "fp16"};
  const Arguments bf16 = toy + Arguments{"--dtype", "bf16"};
  const auto needs = [&](const Arguments& flags) {
    return plan_json(flags)["host_bytes"].get<uint64_t>();
  };
  ASSERT_LT(needs(bf16), needs(fp16));
  const auto offers_bf16 = [&](uint64_t host_memory, const Arguments& more) {
    const Json refused =
        plan_json(fp16 + more + Arguments{"--host-memory", std::to_string(host_memory)}, 3);
    return std::ranges::any_of(refused["changes"], [&](const Json& change) {
      const std::string text = change["change"];
      if (!text.starts_with("--dtype bf16")) return false;
      plan_json(changed(fp16 + more, text) +
                Arguments{"--host-memory", std::to_string(host_memory)});
      return true;
    });
  };
  EXPECT_TRUE(offers_bf16(needs(bf16), {}));
  EXPECT_TRUE(offers_bf16(needs(bf16), {"--gradient-dtype", "fp16"}));
  EXPECT_FALSE(offers_bf16(needs(bf16) / 2, {}));
}

TEST_F(PlanCommand, AdvisesNoSequenceLengthBeyondTheModel) {
  const Json refused =
      plan_json({"--preset", "toy-bytes", "--machine", "rtx4090", "--device-memory", "1MiB"}, 3);
  EXPECT_GT(refused["changes"].size(), 0u);
}

TEST_F(PlanCommand, SaysWhichUsualSizesOfMemoryWouldDo) {
  const Arguments settings = {"--preset", "llama-2-7b", "--machine", "rtx4090"};
  const Json refused = plan_json(settings + Arguments{"--host-memory", "64GB"}, 3);
  ASSERT_EQ(refused["memory_that_fits"].size(), 2u) << refused;
  const Json& ram = refused["memory_that_fits"][0];
  const Json& gpu = refused["memory_that_fits"][1];
  const auto fits = [&](const std::string& host, const std::string& device) {
    return plan(settings + Arguments{"--host-memory", host, "--device-memory", device}).exit_code ==
           0;
  };
  const std::string ram_size = fmt::format("{}GB", ram["ram_gigabytes"].get<int>());
  EXPECT_FALSE(ram.contains("gpu_gigabytes"));
  EXPECT_EQ(ram_size, "96GB");
  EXPECT_TRUE(fits(std::to_string(ram["host_bytes"].get<uint64_t>()), "23GiB"));
  EXPECT_FALSE(fits(std::to_string(ram["host_bytes"].get<uint64_t>() - (1 << 20)), "23GiB"));
  EXPECT_EQ(gpu["gpu_gigabytes"], 48);
  EXPECT_FALSE(fits("64GB", "31GiB"));  // of a GPU with 32 GB
  EXPECT_TRUE(fits("64GB", "44GiB"));
  const std::string text = plan(settings + Arguments{"--host-memory", "64GB"}).out;
  EXPECT_SAYS(text, "96 GB of RAM is enough");
  // Enough RAM is what the same plan takes without a limit.
  const Json roomy = plan_json(settings + Arguments{"--host-memory", "1TB"});
  EXPECT_EQ(refused["tokens_per_second_with_enough_ram"], roomy["tokens_per_second"]);
  EXPECT_EQ(refused["optimistic_tokens_per_second_with_enough_ram"],
            roomy["optimistic_tokens_per_second"]);
  EXPECT_SAYS(text, "a GPU with 48 GB is enough");
}

/// The memory of the device is RAM, too.
TEST_F(PlanCommand, SaysHowMuchRamAHostNeeds) {
  const Arguments settings = kToy + Arguments{"--device-memory", "4MiB"};
  const Json refused = plan_json(settings + Arguments{"--host-memory", "5MiB"}, 3);
  ASSERT_EQ(refused["memory_that_fits"].size(), 1u) << refused;
  const Json& ram = refused["memory_that_fits"][0];
  EXPECT_EQ(ram["ram_gigabytes"], 16);
  EXPECT_FALSE(ram.contains("gpu_gigabytes"));
  const uint64_t of_host = ram["host_bytes"].get<uint64_t>() - (uint64_t{4} << 20);
  plan_json(settings + Arguments{"--host-memory", std::to_string(of_host)});
  plan_json(settings + Arguments{"--host-memory", std::to_string(of_host - 1)}, 3);
  EXPECT_SAYS(plan(settings + Arguments{"--host-memory", "5MiB"}).out,
              "16 GB of RAM is enough (the run takes ");
  const Json small_device = plan_json(kToy + Arguments{"--device-memory", "1MiB"}, 3);
  EXPECT_TRUE(small_device["memory_that_fits"].empty()) << "RAM does not help: " << small_device;
}

TEST_F(PlanCommand, SaysThatNothingWouldMakeItFaster) {
  // The model fits into the GPU, and steps are long: only its arithmetic takes time.
  const Outcome outcome =
      plan({"--preset", "gpt2", "--machine", "rtx4090", "--gradient-accumulation", "64"});
  EXPECT_SAYS(outcome.out, "faster  no single change of a flag is predicted to give 5 % more");
}

/// The activations of more micro-batches fill the host memory, so layers recompute more.
TEST_F(PlanCommand, SaysIfAShorterStepWouldBeFaster) {
  const Outcome outcome = plan({"--preset", "mistral-7b", "--machine", "rtx4070ti-super",
                                "--host-memory", "128GB", "--gradient-accumulation", "8"});
  EXPECT_SAYS(outcome.out, "--gradient-accumulation 4 (half the tokens a step): 1.0");
}

TEST_F(PlanCommand, SaysWhatWouldMakeItFaster) {
  const Arguments settings = {"--preset", "gpt3-6.7b", "--machine", "rtx4090"};
  const Json planned = plan_json(settings);
  ASSERT_GE(planned["faster"].size(), 1u);
  double before = 1e9;
  for (const Json& change : planned["faster"]) {
    const double gain = change["gain"];
    EXPECT_GE(gain, kLeastGain) << change;
    EXPECT_LE(gain, before) << change;
    before = gain;
    const Json after = plan_json(changed(settings, change["change"]));
    EXPECT_NEAR(
        after["tokens_per_second"].get<double>() / planned["tokens_per_second"].get<double>(), gain,
        0.02)
        << change;
  }
}

}  // namespace
}  // namespace ebb::tests_of_plan_advice

// The command `ebb plan`: its numbers agree with the planned run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "device/errors.h"
#include "io/json_text.h"
#include "tests/tools/plan_command.h"

namespace ebb::tests_of_plan {
namespace {

using Json = nlohmann::json;

TEST_F(PlanCommand, PredictsTheMemoryOfTheRun) {
  const Arguments settings =
      kToy + Arguments{"--device-memory", "4MiB",  "--micro-batch-order", "vertical",
                       "--recompute",     "block", "--activations",       "device",
                       "--update",        "wait"};
  const Json planned = plan_json(settings);
  const std::string data = folder_.write("text", std::string(40000, 'x'));
  const std::string log = (folder_.path() / "log").string();
  const Outcome trained =
      run(Arguments{"train"} + settings + Arguments{"--data", data, "--steps", "3", "--log", log});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  std::istringstream lines(content_of(log));
  for (int step = 0; step < 3; ++step) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    const Json record = parse_json(line);
    EXPECT_EQ(record["device_peak_bytes"], planned["device_bytes"]);
    EXPECT_EQ(record["host_bytes"], planned["host_bytes"]);
    EXPECT_EQ(record["loaded_bytes"], planned["loaded_bytes"]);
    EXPECT_EQ(record["stored_bytes"], planned["stored_bytes"]);
  }
}

TEST_F(PlanCommand, AddsUpToItsTotals) {
  const Json planned = plan_json({"--preset", "gpt3-6.7b", "--machine", "h200", "--device-memory",
                                  "16GiB", "--gradient-accumulation", "4"});
  uint64_t device = 0, host = 0;
  for (const Json& entry : planned["memory"]) {
    (entry["tier"] == "device" ? device : host) += entry["bytes"].get<uint64_t>();
  }
  EXPECT_EQ(device, planned["device_bytes"]);
  EXPECT_EQ(host, planned["host_bytes"]);
  EXPECT_LE(host, 1'024'000'000'000u);
  uint64_t loaded = 0, stored = 0;
  for (const Json& row : planned["traffic"]) {
    loaded += row["loaded_bytes"].get<uint64_t>();
    stored += row["stored_bytes"].get<uint64_t>();
  }
  EXPECT_EQ(loaded, planned["loaded_bytes"]);
  EXPECT_EQ(stored, planned["stored_bytes"]);
  const Json& chosen = planned["candidates"][planned["chosen"].get<size_t>()];
  EXPECT_EQ(chosen["predicted_seconds"], planned["predicted_seconds"]);
  EXPECT_GE(planned["predicted_seconds"], planned["bound_seconds"]);
  for (const Json& candidate : planned["candidates"]) {
    if (candidate.contains("why_not")) continue;
    EXPECT_GE(candidate["predicted_seconds"], planned["predicted_seconds"]);
  }
}

/// The backward of cuDNN stores scores: 2 bytes per head and pair of tokens. Here they are those of
/// all samples of a micro-batch.
TEST_F(PlanCommand, CountsTheScoresOfTheAttentionBackward) {
  if (run({"devices"}).out.find("built without the CUDA toolkit") != std::string::npos) {
    GTEST_SKIP() << "without CUDA the workspace is that of the host backend";
  }
  const Arguments gpt2 = {"--preset", "gpt2", "--machine", "rtx4090", "--micro-batch-size", "8"};
  const auto smallest = [&](const Arguments& more) {
    return plan_json(gpt2 + more)["smallest_device_bytes"].get<uint64_t>();
  };
  const uint64_t any = smallest({}), ours = smallest({"--attention", "ebb"});
  EXPECT_EQ(smallest({"--attention", "cudnn"}), any);
  EXPECT_EQ(smallest({"--dtype", "fp32"}), smallest({"--dtype", "fp32", "--attention", "ebb"}));
  const uint64_t scores = uint64_t{8} * 12 * 1024 * 1024 * 2;
  EXPECT_GT(any - ours, scores - (uint64_t{64} << 20))
      << "the workspace is shared with matrix products";
  EXPECT_LT(any - ours, scores);
  const Json refused = plan_json(gpt2 + Arguments{"--device-memory", std::to_string(ours)}, 3);
  EXPECT_TRUE(std::ranges::any_of(refused["changes"], [](const Json& change) {
    return change["change"] == "--attention ebb";
  })) << refused["changes"];
}

/// The budget of the user holds, and the run says what may happen.
TEST_F(PlanCommand, TrainWarnsOfMoreHostMemoryThanIsAvailable) {
  const std::string data = folder_.write("text", std::string(40000, 'x'));
  const auto warns = [&](const std::string& host_memory) {
    const Outcome outcome = run(Arguments{"train", "--data", data, "--dry-run"} + kToy +
                                Arguments{"--host-memory", host_memory});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out.find("the system may end it") != std::string::npos;
  };
  EXPECT_TRUE(warns("1000TiB"));
  EXPECT_FALSE(warns("256MiB"));
}

TEST_F(PlanCommand, SaysWhatTheLayersRecompute) {
  const Arguments settings = {"--preset",
                              "gpt2-xl",
                              "--machine",
                              "rtx4090",
                              "--device-memory",
                              "8GiB",
                              "--gradient-accumulation",
                              "8",
                              "--micro-batch-order",
                              "vertical",
                              "--activations",
                              "offload"};
  const Json planned = plan_json(settings);
  std::map<std::string, int> num_layers;
  std::map<std::string, Json> layer;  // by what it recomputes
  for (const Json& l : planned["layers"]) {
    ++num_layers[l["recompute"]];
    layer[l["recompute"]] = l;
  }
  ASSERT_EQ(planned["layers"].size(), 48u);
  ASSERT_GT(num_layers.size(), 1u);
  const std::string text = plan(settings).out;
  for (const auto& [name, count] : num_layers) {
    EXPECT_SAYS(text, fmt::format("{} in {}", name, count));
    EXPECT_SAYS(text, fmt::format("{} x {} (recompute {})", count,
                                  format_bytes(layer[name]["kept_bytes"]), name));
  }
  // Who recomputes more keeps less.
  const Json &less = layer.begin()->second, &more = layer.rbegin()->second;
  EXPECT_EQ(less["kept_bytes"] > more["kept_bytes"],
            less["recompute_seconds"] < more["recompute_seconds"]);
}

TEST_F(PlanCommand, RefusesStepsBeyondTheLimits) {
  const auto refuse = [&](const std::string& flag, const std::string& value,
                          const std::string& order, const std::string& message) {
    const Outcome outcome = plan({"--preset", "gpt2", "--machine", "h200", flag, value,
                                  "--recompute", "none", "--micro-batch-order", order});
    EXPECT_FAILS(outcome, 2, message);
    EXPECT_SAYS(outcome.err, flag);
  };
  refuse("--micro-batch-size", "1048576", "horizontal", "activations of more than 64 TiB at once");
  refuse("--gradient-accumulation", "1048576", "horizontal", "more than 4194304 calls");
  refuse("--gradient-accumulation", "4097", "vertical", "need a tape each");
  EXPECT_FAILS(plan({"--preset", "gpt2-xl", "--machine", "h200", "--chunk-size", "256KiB",
                     "--gradient-accumulation", "64", "--micro-batch-order", "horizontal"}),
               2, "and a plan may have 1048576 uses: give a chunk size of at least");
  EXPECT_FAILS(plan({"--preset", "gpt3-13b", "--machine", "h200", "--chunk-size", "256KiB"}), 2,
               "and a plan may have 131072: give a chunk size of at least 512 KiB");
}

TEST_F(PlanCommand, CountsTheStagingBuffersOfALimitOfPinnedMemory) {
  const Arguments gpu = {"--preset", "toy-bytes", "--machine", "h100", "--seq-length", "32"};
  const auto staging_bytes = [&](const Arguments& arguments) {
    size_t bytes = 0;
    const Json planned = plan_json(arguments);
    for (const Json& entry : planned["memory"]) {
      if (entry["class"] == "staging buffers") bytes += entry["bytes"].get<size_t>();
    }
    return bytes;
  };
  EXPECT_EQ(staging_bytes(gpu), 0u);
  EXPECT_EQ(staging_bytes(gpu + Arguments{"--pinned", "1GiB"}), 0u);
  EXPECT_EQ(staging_bytes(gpu + Arguments{"--pinned", "2MiB"}), size_t{512} << 10);
  const Json free = plan_json(kToy), limited = plan_json(kToy + Arguments{"--pinned", "2MiB"});
  EXPECT_EQ(limited["memory"], free["memory"]);
}

TEST_F(PlanCommand, RefusesAnEmulatedLinkOnAnotherMachine) {
  const Outcome outcome = plan(kToy + Arguments{"--machine", "h200", "--link", "12GB/s"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_SAYS(outcome.err, "--link");
}

TEST_F(PlanCommand, ARefusedPlanNamesWhatWasPlanned) {
  const std::string page = (folder_.path() / "page.html").string();
  const Outcome refused = plan({"--preset", "toy-bytes", "--machine", "rtx4090", "--seq-length",
                                "32", "--device-memory", "1MiB", "--html", page});
  ASSERT_EQ(refused.exit_code, 3) << refused.err;
  EXPECT_SAYS(refused.out, "model   toy-bytes: 858880 parameters, bf16\nmachine rtx4090");
  EXPECT_SAYS(refused.out, "step    1 micro-batches x 4 sequences x 32 tokens");
  EXPECT_SAYS(refused.err, "page.html' is not written, because the plan does not fit");
  EXPECT_FALSE(std::filesystem::exists(page));
}

/// Several requests may have one result, which the table shows once. It shows the best ones.
TEST_F(PlanCommand, ShowsTheBestResultsOnce) {
  const Outcome outcome = plan({"--preset", "gpt2", "--machine", "rtx4090", "--device-memory",
                                "2GiB", "--gradient-accumulation", "8"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::set<std::string> rows;
  int num_chosen = 0;
  for (std::string line; std::getline(lines, line);) {
    const bool is_row = line.find(" horizontal ") < 4 || line.find(" vertical ") < 4;
    if (!is_row) continue;
    num_chosen += line.starts_with('*') ? 1 : 0;
    EXPECT_EQ(num_chosen, 1) << "the chosen one is the first";
    line.front() = ' ';
    EXPECT_TRUE(rows.insert(line).second) << line;
  }
  EXPECT_EQ(rows.size(), 5u);
  EXPECT_SAYS(outcome.out, " more\n");
}

TEST_F(PlanCommand, SaysThatTheHostMemoryOfAMachineIsAssumed) {
  const Arguments fits = {"--preset", "gpt2-xl", "--machine", "rtx4090"};
  const Arguments given = {"--host-memory", "128GB"};
  const std::string assumed = plan(fits).out, known = plan(fits + given).out;
  EXPECT_SAYS(assumed, "(119.21 GiB are 128.0 GB, which is assumed: give --host-memory)");
  EXPECT_SAYS(known, "(119.21 GiB are 128.0 GB)");
  const Arguments too_large = {"--preset", "llama-2-13b", "--machine", "rtx4090"};
  const std::string refused = plan(too_large).out;
  EXPECT_SAYS(refused, "fits    no: host memory 119.2");
  EXPECT_SAYS(refused, "\nassumed 128.0 GB of RAM: give --host-memory\n");
  EXPECT_SAYS(refused, "MiB (a machine with more memory)\n");
  for (const std::string& text : {assumed, refused})
    EXPECT_SAYS(text, "\nunits   1 MiB = 1024 KiB");
  EXPECT_EQ(plan(too_large + given).out.find("\nassumed"), std::string::npos);
}

TEST_F(PlanCommand, SaysHowOftenAGpuMapsBlocks) {
  const Json planned = plan_json(kLarge);
  const auto mappings = planned["mappings"].get<uint32_t>();
  EXPECT_GT(mappings, 0u);
  EXPECT_SAYS(plan(kLarge).out, fmt::format(" blocks, and maps {} blocks\n", mappings));
  EXPECT_FALSE(plan_json(kToy).contains("mappings"));  // the host device has none
}

/// The reasons of all copies are in the text, and their sums are those of the step.
TEST_F(PlanCommand, SaysWhyAStepCopies) {
  const std::string text = plan(kLarge).out;
  const size_t loads = text.find("\n        loads: weights "),
               stores = text.find("\n        stores: ");
  ASSERT_NE(loads, std::string::npos) << text;
  ASSERT_NE(stores, std::string::npos) << text;
  EXPECT_LT(text.find("\ntraffic a step loads "), loads);
  EXPECT_LT(loads, stores);
  EXPECT_SAYS(text.substr(loads, stores - loads), " first use");
  EXPECT_SAYS(text.substr(stores, text.find('\n', stores + 1) - stores), " evicted");
}

TEST_F(PlanCommand, SuggestsAPresetForAnUnknownOne) {
  EXPECT_FAILS(
      plan({"--preset", "llama3-8b", "--machine", "h200"}), 2,
      "--preset 'llama3-8b': there is no such preset; did you mean llama-3.1-8b? there are "
      "toy-bytes, ");
  EXPECT_FAILS(plan({"--model", "gpt2-xl", "--machine", "h200"}), 2,
               "did you mean --preset gpt2-xl?");
}

TEST_F(PlanCommand, ReportsAMissingModelBeforeItWritesAFile) {
  const std::string machine = (folder_.path() / "machine.json").string();
  EXPECT_FAILS(plan({"--model", "no/such", "--machine", "h200", "--write-machine", machine}), 2,
               "there is no such folder");
  EXPECT_FALSE(std::filesystem::exists(machine));
}

TEST_F(PlanCommand, MeasuresOnlyThisMachineAgain) {
  EXPECT_FAILS(plan(kToy + Arguments{"--machine", "h200", "--measure"}), 2,
               "--measure measures this machine, and the plan is for --machine h200");
}

/// The memory of `ebb models` is what `ebb plan` says, for models of each kind.
TEST_F(PlanCommand, AgreesWithTheMemoryOfModels) {
  const std::string models = run({"models"}).out;
  for (const std::string preset :
       {"toy-bytes", "gpt2", "bert-base", "qwen2.5-0.5b", "llama-3.1-8b"}) {
    const Json planned = plan_json({"--preset", preset, "--machine", "h200"});
    const size_t at = models.find("\n" + preset + " ") + 1;
    // A weight takes 2 bytes; its state takes 12, and its gradient 2.
    const size_t weights = 2 * planned["parameters"].get<size_t>();
    EXPECT_SAYS(
        models.substr(at, models.find('\n', at) - at),
        fmt::format(" {:>10} {:>10} {:>11} ", format_bytes(weights), format_bytes(7 * weights),
                    format_bytes(planned["smallest_device_bytes"].get<size_t>())));
  }
}

}  // namespace
}  // namespace ebb::tests_of_plan

// Machine files: `ebb plan` writes a file on one machine, and gives the same plan from it on
// another.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "io/json_text.h"
#include "tests/tools/run_ebb.h"
#include "tools/machine_rates.h"
#include "tools/planned_machine.h"

namespace ebb {
namespace {

using Json = nlohmann::json;

class MachineFiles : public testing::Test {
 protected:
  Outcome plan(const Arguments& more) const {
    Arguments arguments = {"plan", "--preset", "toy-bytes", "--chunk-size", "256KiB"};
    return run_ebb(arguments + more, folder_.path());
  }
  Json plan_json(Arguments arguments) const {
    arguments.emplace_back("--json");
    const Outcome outcome = plan(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return parse_json(outcome.out);
  }

  const TemporaryFolder folder_;
  const std::string file_ = (folder_.path() / "machine.json").string();
};

TEST_F(MachineFiles, NameTheSourcesOfThePresetRates) {
  plan_json({"--machine", "h200", "--write-machine", file_});
  const Json written = parse_json(content_of(file_));
  EXPECT_SAYS(written["flops_per_s"]["source"].get<std::string>(), "bench/results/");
  EXPECT_EQ(written["update_bytes_per_s"]["value"].size(), 2u);
  EXPECT_SAYS(written["host_memory_bytes"]["source"].get<std::string>(), "assumed: a server");
  const std::string copy = (folder_.path() / "copy.json").string();
  plan_json({"--machine", file_, "--write-machine", copy});
  EXPECT_EQ(content_of(copy), content_of(file_));
}

/// A text counts as a source if it names a document, a measurement or what it is derived from.
TEST_F(MachineFiles, OfThePresetsStateTheSourceOfEachFigure) {
  for (const PlannedMachine& machine : machine_presets()) {
    const std::map<std::string, std::string>& sources = machine.sources;
    EXPECT_TRUE(machine.optimistic) << machine.name;
    EXPECT_TRUE(sources.contains("device_memory_bytes")) << machine.name;
    EXPECT_TRUE(sources.contains("host_memory_bytes")) << machine.name;
    for (const RateField& field : rate_fields()) {
      if (machine.rates.*field.member == 0) continue;
      const auto source = sources.find(field.name);
      ASSERT_NE(source, sources.end()) << machine.name << ": " << field.name;
      const auto says = [&](const char* text) {
        return source->second.find(text) != std::string::npos;
      };
      EXPECT_TRUE(says("https://") || says("bench/results/") || says("derived: "))
          << machine.name << ": " << field.name;
    }
  }
}

TEST_F(MachineFiles, GiveBothEndsOfTheTimeOfOnePlan) {
  const Json both = plan_json({"--machine", "h200", "--write-machine", file_});
  EXPECT_LT(both["optimistic_seconds"], both["predicted_seconds"]);
  EXPECT_GT(both["optimistic_tokens_per_second"], both["tokens_per_second"]);
  EXPECT_SAYS(plan({"--machine", "h200"}).out, "predicted (at best ");
  // The same machine without optimistic values.
  Json machine = parse_json(content_of(file_));
  for (auto& [name, figure] : machine.items()) {
    if (figure.is_object() && figure["value"].is_array()) figure["value"] = figure["value"][0];
  }
  const Arguments one = {"--machine", folder_.write("one.json", json_text(machine))};
  const Json pessimistic = plan_json(one);
  EXPECT_EQ(pessimistic["predicted_seconds"], both["predicted_seconds"]);
  EXPECT_EQ(pessimistic["optimistic_seconds"], pessimistic["predicted_seconds"]);
  EXPECT_EQ(plan(one).out.find("at best"), std::string::npos);
}

/// GPT-2 has 768 channels, so all its products but that of the head are narrow. Those of GPT-3 6.7B
/// have 4096 rows or columns at least.
TEST_F(MachineFiles, GiveNarrowProductsAndTheBackwardOfAttentionRatesOfTheirOwn) {
  plan_json({"--machine", "h200", "--write-machine", file_});
  const Json machine = parse_json(content_of(file_));
  const auto seconds = [&](const std::string& preset, const std::string& slow) {
    Json changed = machine;
    if (!slow.empty()) changed[slow] = changed[slow]["value"][0].get<double>() / 10;
    const std::string file = folder_.write("changed.json", json_text(changed));
    return parse_json(
               run_ebb({"plan", "--preset", preset, "--machine", file, "--json"}, folder_.path())
                   .out)["predicted_seconds"]
        .get<double>();
  };
  EXPECT_GT(seconds("gpt2", "narrow_flops_per_s"), 2 * seconds("gpt2", ""));
  EXPECT_EQ(seconds("gpt3-6.7b", "narrow_flops_per_s"), seconds("gpt3-6.7b", ""));
  const double forward = seconds("gpt2", "attention_flops_per_s");
  const double backward = seconds("gpt2", "attention_backward_flops_per_s");
  EXPECT_GT(forward, 1.05 * seconds("gpt2", ""));
  EXPECT_GT(backward, forward);  // 2.5 times the arithmetic, at a lower rate
}

TEST_F(MachineFiles, OfOlderNamesAreFound) {
  EXPECT_EQ(find_machine("a100").device, find_machine("a100-80gb").device);
  EXPECT_THROW(find_machine(std::string(300, 'x')), ConfigError);  // is no path
}

/// With the host backend, device and host share one memory, and the kernels need a workspace of the
/// same size.
TEST_F(MachineFiles, OfThisMachineGiveTheSamePlan) {
  const Json here = plan_json({"--device", "host", "--threads", "2", "--write-machine", file_});
  const PlannedMachine machine = find_machine(file_);
  EXPECT_GT(machine.rates.flops_per_s, 0);
  EXPECT_EQ(machine.num_threads, 2);
  EXPECT_EQ(to_json(machine), content_of(file_));
  EXPECT_SAYS(parse_json(content_of(file_))["kernel_s"]["source"].get<std::string>(),
              "measured by");
  const Json there = plan_json({"--machine", file_});
  EXPECT_EQ(there["memory"], here["memory"]);
  EXPECT_EQ(there["smallest_device_bytes"], here["smallest_device_bytes"]);
  EXPECT_GT(there["predicted_seconds"], 0);
  EXPECT_FAILS(plan({"--machine", file_, "--device", "cuda"}), 2, "' is the host");
  EXPECT_FAILS(plan({"--machine", file_, "--threads", "1"}), 2, "were measured with 2");
  EXPECT_FAILS(plan({"--machine", "h200", "--device", "host"}), 2, "'h200' is a GPU");
}

TEST_F(MachineFiles, WithInvalidContentAreRefused) {
  const auto refuse = [&](const std::string& content, const std::string& message) {
    const Outcome outcome = plan({"--machine", folder_.write("bad.json", content)});
    EXPECT_FAILS(outcome, 2, message);
    EXPECT_SAYS(outcome.err, "bad.json");
  };
  refuse("{", "not JSON from here on");
  refuse("[]", "this JSON is of type array; needed is an object");
  refuse(R"({"name": "x"})",
         "must have the fields 'device', 'device_memory_bytes', "
         "'host_memory_bytes', 'flops_per_s', 'attention_flops_per_s', ");
  Json machine = parse_json(to_json(machine_presets().front()));
  machine["num_threads"] = 1.5;
  refuse(json_text(machine), "'num_threads' of a machine is 1.5: it must be a whole number");
  machine["num_threads"] = 1;
  const Json memory = machine["host_memory_bytes"];
  for (const double bytes : {-1.0, 0.0, 0.5, 1.5, 1e16, 1e30}) {
    machine["host_memory_bytes"] = bytes;
    refuse(json_text(machine), "it must be a whole number from 1 to 9007199254740992");
  }
  machine["host_memory_bytes"] = memory;
  machine["thread_count"] = 4;
  refuse(json_text(machine), "'thread_count' of a machine is not known; known are 'name', ");
  machine.erase("thread_count");
  machine["flops_per_sec"] = 1e12;
  refuse(json_text(machine),
         "'flops_per_sec' of a machine is not known; did you mean "
         "'flops_per_s'?");
  machine.erase("flops_per_sec");
  machine["device"] = 3;
  refuse(json_text(machine), "'device' of a machine must be a text");
  machine["device"] = "a device";
  machine["shared_cores"] = 1;
  refuse(json_text(machine), "'shared_cores' of a machine must be true or false");
  machine["shared_cores"] = false;
  for (const char* field : {"load_bytes_per_s", "flops_per_s", "device_bytes_per_s"}) {
    const Json kept = machine[field];
    for (const double rate : {-1.0, 0.0, 1e-300, 999.0, 1e22, 1e300}) {
      machine[field] = rate;
      refuse(json_text(machine), fmt::format("'{}' of a machine is {}: it must be a number from "
                                             "1000 to 1e+21",
                                             field, rate));
    }
    machine[field] = kept;
  }
  machine["kernel_s"] = 1e30;
  refuse(json_text(machine),
         "'kernel_s' of a machine is 1e+30: it must be a number from 0 to 1000");
  machine["kernel_s"] = 0;
  machine["copy_bytes_per_s"] = 1e-300;
  refuse(json_text(machine), "is 1e-300: it must be 0, or a number from 1000 to 1e+21");
  machine["copy_bytes_per_s"] = 0;
  for (const Json& figure : {Json("fast"), Json::array({1e9}), Json{{"source", "a table"}}}) {
    machine["load_bytes_per_s"] = figure;
    refuse(json_text(machine), "'load_bytes_per_s' of a machine must be a number, or [");
  }
  machine["load_bytes_per_s"] = Json{{"value", {2e9, 1e9}}, {"source", "a table"}};
  refuse(json_text(machine),
         "is [2000000000, 1000000000]: the pessimistic value comes first, so "
         "it must be the smaller one");
  machine["load_bytes_per_s"]["value"] = 1e9;
  machine["load_bytes_per_s"]["source"] = 3;
  refuse(json_text(machine), "'load_bytes_per_s' of a machine must have a text as its source");
  machine.erase("load_bytes_per_s");
  refuse(json_text(machine), "must have the field 'load_bytes_per_s'");
}

TEST_F(MachineFiles, ThatDoNotExistAreRefused) {
  EXPECT_FAILS(plan({"--machine", folder_.path().string()}), 2,
               "--machine '" + folder_.path().string() + "': allowed is this, rtx3060, ");
  for (const std::string& name : {std::string("RTX 4090"), std::string("rtx4909")}) {
    EXPECT_FAILS(plan({"--machine", name}), 2,
                 "--machine '" + name + "': did you mean rtx4090? allowed is this, rtx3060, ");
  }
  EXPECT_FAILS(plan({"--machine", "rtx4070"}), 2, "did you mean rtx4070ti-super?");
  EXPECT_FAILS(plan({"--machine", "4090"}), 2, "did you mean rtx4090?");
  EXPECT_FAILS(plan({"--machine", "gtx-970"}), 2,
               "write one with `ebb plan --machine rtx4090 --write-machine FILE`");
}

}  // namespace
}  // namespace ebb

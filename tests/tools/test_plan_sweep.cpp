// `ebb plan` with several device budgets.
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tools/plan_command.h"

namespace ebb {
namespace {

using Json = nlohmann::json;

TEST_F(PlanCommand, SweepsFromTheSmallestBudgetThatWorks) {
  const Arguments settings = {"--preset",
                              "gpt3-2.7b",
                              "--machine",
                              "rtx4090",
                              "--micro-batch-size",
                              "1",
                              "--gradient-accumulation",
                              "2"};
  const Json planned = plan_json(settings);
  const Outcome outcome = plan(settings + Arguments{"--sweep", "device-memory", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::vector<Json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(parse_json(line));
  ASSERT_EQ(rows.size(), 10u);
  EXPECT_EQ(rows.front()["device_memory"], planned["smallest_device_bytes"]);
  for (const Json& row : rows) {
    EXPECT_LT(row["optimistic_seconds"], row["predicted_seconds"]);
    EXPECT_GT(row["optimistic_tokens_per_second"], row["tokens_per_second"]);
  }
  for (size_t i = 1; i < rows.size(); ++i) {
    EXPECT_GT(rows[i]["device_memory"], rows[i - 1]["device_memory"]);
  }
  EXPECT_LT(rows.back()["predicted_seconds"], rows.front()["predicted_seconds"]);
}

/// Without speculative updates, the fastest unrefined step keeps and offloads all activations. With
/// speculative updates it does not, and the planner has to search over recomputed layers.
TEST_F(PlanCommand, MoreMemoryIsNotSlower) {
  const auto predicted_s = [&](const char* memory) {
    return plan_json({"--preset", "gpt2-xl", "--machine", "rtx4090", "--device-memory",
                      memory})["predicted_seconds"]
        .get<double>();
  };
  EXPECT_LT(predicted_s("9GiB"), predicted_s("6GiB"));
}

/// With the smallest device budget, the plan needs more host memory than the 128 GB of this
/// machine.
TEST_F(PlanCommand, SweepsPastBudgetsThatDoNotFitInHostMemory) {
  const Arguments settings = kLarge + Arguments{"--recompute", "none", "--sweep", "device-memory"};
  const Outcome table = plan(settings);
  ASSERT_EQ(table.exit_code, 0) << table.err;
  std::istringstream lines(table.out);
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(line);
  ASSERT_EQ(rows.size(), 1 + 10u) << table.out;  // a title and ten budgets
  EXPECT_SAYS(rows[1], "does not fit") << table.out;
  EXPECT_EQ(rows.back().find("does not fit"), std::string::npos) << table.out;
  // The time and the tokens per second of a step have two ends each.
  EXPECT_EQ(rows[0].find("at best"), rows[0].find("step s") + 6 + 3) << table.out;
  EXPECT_TRUE(rows[0].ends_with("  at best")) << table.out;
}

TEST_F(PlanCommand, RefusesSweepsThatWouldIgnoreAFlag) {
  const auto refuse = [&](const Arguments& arguments, const std::string& message) {
    const Outcome outcome = plan(kToy + arguments);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_SAYS(outcome.err, message);
  };
  const std::string page = (folder_.path() / "page.html").string();
  refuse({"--sweep", "step-tokens", "--html", page}, "--html shows one step");
  refuse({"--sweep", "device-memory", "--device-memory", "4MiB"}, "--device-memory 4 MiB");
  EXPECT_FALSE(std::filesystem::exists(page));
}

}  // namespace
}  // namespace ebb

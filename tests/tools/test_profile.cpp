// `ebb profile`, `ebb train --trace` and `ebb plan --html` show all bytes that the plan moves.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/json_text.h"
#include "tests/tools/run_ebb.h"

namespace ebb {
namespace {

using Json = nlohmann::json;

/// Returns the data in a report.
Json report_data(const std::string& page) {
  const std::string begin = R"(<script id="data" type="application/json">)";
  const size_t from = page.find(begin) + begin.size();
  return parse_json(page.substr(from, page.find("</script>", from) - from));
}

class Profile : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  Arguments arguments(Arguments arguments) const {
    const std::string data = folder_.write("text", std::string(30000, 'x'));
    return arguments + Arguments({"--preset", "toy-bytes", "--data", data, "--chunk-size", "256KiB",
                                  "--device", "host", "--threads", "2", "--seq-length", "32",
                                  "--device-memory", "5MiB", "--gradient-accumulation", "2"});
  }
  Outcome run(const Arguments& command) const {
    return run_ebb(arguments(command), folder_.path());
  }

  const TemporaryFolder folder_;
};

uint64_t bytes_of(const Json& view, int stream) {
  uint64_t bytes = 0;
  for (const Json& op : view["ops"]) {
    if (op[0] == stream) bytes += op[4].get<uint64_t>();
  }
  return bytes;
}

TEST_F(Profile, ShowsEveryByteThatThePlanMoves) {
  const Outcome outcome = run({"profile", "--steps", "2", "--html", path("report.html")});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json data = report_data(content_of(path("report.html")));
  EXPECT_SAYS(outcome.out, "fastest step: compute ");
  EXPECT_SAYS(outcome.out, "  weights, first use ");
  EXPECT_SAYS(outcome.out, "  gradients, update ");
  EXPECT_SAYS(outcome.out, "  h.3 ");
  ASSERT_EQ(data["views"].size(), 2u);
  EXPECT_EQ(data["views"][0]["name"], "measured");
  EXPECT_EQ(data["views"][1]["name"], "predicted");
  EXPECT_GT(data["loaded_bytes"], 0);
  for (const Json& view : data["views"]) {
    EXPECT_EQ(bytes_of(view, 1), data["loaded_bytes"]);
    EXPECT_EQ(bytes_of(view, 2), data["stored_bytes"]);
    std::map<int, double> free_s;  // per stream kind
    for (const Json& op : view["ops"]) {
      const double start = op[1], end = op[2];
      EXPECT_GE(start, free_s[op[0]]) << op;
      EXPECT_GE(end, start) << op;
      EXPECT_LE(end, view["step_s"].get<double>() * (1 + 1e-9)) << op;
      free_s[op[0]] = end;
    }
  }
}

TEST_F(Profile, ABlockHoldsOneChunkAtATime) {
  ASSERT_EQ(run({"profile", "--steps", "1", "--html", path("report.html")}).exit_code, 0);
  const Json data = report_data(content_of(path("report.html")));
  const uint64_t all = data["num_blocks"].get<uint64_t>() * data["chunk_bytes"].get<uint64_t>();
  for (const Json& view : data["views"]) {
    std::map<int, std::vector<std::pair<double, double>>> stays;
    for (const Json& stay : view["stays"]) {
      stays[stay[2]].emplace_back(stay[3].get<double>(), stay[5].get<double>());
      EXPECT_LE(stay[3], stay[4]);
      EXPECT_LE(stay[4], stay[5]);
    }
    EXPECT_LE(stays.size(), data["num_blocks"].get<size_t>());
    for (auto& [block, times] : stays) {
      std::ranges::sort(times);
      for (size_t i = 1; i < times.size(); ++i) EXPECT_GE(times[i].first, times[i - 1].second);
    }
    uint64_t most = 0;
    for (const Json& row : view["memory"]) {
      uint64_t bytes = 0;
      for (size_t space = 1; space < row.size(); ++space) bytes += row[space].get<uint64_t>();
      EXPECT_LE(bytes, all);
      most = std::max(most, bytes);
    }
    EXPECT_GT(most, all / 2) << "most blocks must be used";
  }
}

TEST_F(Profile, TracesEveryStepOfTraining) {
  const Outcome outcome =
      run({"train", "--steps", "3", "--trace", path("trace.json"), "--log", path("log")});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json events = parse_json(content_of(path("trace.json")));
  const Json first_line =
      parse_json(content_of(path("log")).substr(0, content_of(path("log")).find('\n')));
  size_t steps = 0, arrows_from = 0, arrows_to = 0;
  uint64_t loaded = 0;
  for (const Json& event : events) {
    const std::string phase = event["ph"], name = event["name"];
    steps += phase == "X" && name.starts_with("step ");
    arrows_from += phase == "s";
    arrows_to += phase == "f";
    if (phase != "X" || !name.starts_with("load ")) continue;
    loaded += event["args"]["bytes"].get<uint64_t>();
    EXPECT_TRUE(event["args"].contains("reason")) << event;
    if (!name.starts_with("load weights ")) continue;
    EXPECT_SAYS(name, "(");
    EXPECT_SAYS(event["args"]["parameters"].get<std::string>(), ".weight");
  }
  EXPECT_EQ(steps, 3u);
  EXPECT_GT(arrows_from, 0u);
  EXPECT_EQ(arrows_from, arrows_to);
  EXPECT_EQ(loaded, 3 * first_line["loaded_bytes"].get<uint64_t>());
}

/// The report contains the steps until the signal.
TEST_F(Profile, ASignalEndsItAfterItsStep) {
  for (const auto& [signal, code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    const std::string page = path(std::to_string(signal) + ".html");
    std::filesystem::remove(path("stderr"));  // of the previous run
    EbbProcess process(arguments({"profile", "--steps", "100000", "--html", page}), folder_.path());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (content_of(path("stderr")).find("step 2/") == std::string::npos &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    process.signal(signal);
    const Outcome outcome = process.wait();
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    EXPECT_SAYS(outcome.err, "the profile ends after this step");
    EXPECT_SAYS(outcome.err, "stopped after step ");
    EXPECT_EQ(report_data(content_of(page))["views"].size(), 2u);
  }
}

TEST_F(Profile, NeedsNoFile) {
  const Outcome outcome = run({"profile", "--steps", "1"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_SAYS(outcome.out, "fastest step: compute ");
  EXPECT_EQ(outcome.out.find("report: "), std::string::npos) << outcome.out;
}

TEST_F(Profile, RefusesFlagsThatItWouldIgnore) {
  for (const Arguments& lost : {Arguments{"--dry-run"},
                                {"--resume"},
                                {"--save", path("saved")},
                                {"--log", path("log")},
                                {"--eval-data", path("text")}}) {
    Arguments command = {"profile", "--html", path("report.html")};
    command += lost;
    const Outcome refused = run(command);
    EXPECT_EQ(refused.exit_code, 2) << lost[0];
    EXPECT_SAYS(refused.err, lost[0] + " is for `ebb train`");
  }
  const Outcome no_folder = run({"train", "--trace", path("no/such/folder/trace")});
  EXPECT_EQ(no_folder.exit_code, 2);
  EXPECT_SAYS(no_folder.err, "no/such/folder");
}

TEST_F(Profile, APlanIsShownWithoutARun) {
  const Outcome outcome = run_ebb(
      {"plan", "--preset", "gpt3-2.7b", "--machine", "rtx4090", "--html", path("plan.html")},
      folder_.path());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json data = report_data(content_of(path("plan.html")));
  ASSERT_EQ(data["views"].size(), 1u);
  EXPECT_EQ(bytes_of(data["views"][0], 1), data["loaded_bytes"]);
}

}  // namespace
}  // namespace ebb

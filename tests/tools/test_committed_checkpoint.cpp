// A checkpoint that an earlier version wrote can be resumed: its format, its flags and their values
// are still understood. `--recompute block`, for example, is `layer` today.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "io/json_text.h"
#include "tests/tools/run_ebb.h"

namespace ebb::test {
namespace {

namespace fs = std::filesystem;

// Written by commit 7d03729 after 4 of 8 steps, with fp32 arithmetic. Beside it are the data and
// the log of the 8 steps, without times.
const std::string kFolder = fixture_path("checkpoint_7d03729");

std::vector<nlohmann::json> lines_of(const std::string& log) {
  std::vector<nlohmann::json> lines;
  std::istringstream in(log);
  for (std::string line; std::getline(in, line);) lines.push_back(parse_json(line));
  return lines;
}

TEST(CommittedCheckpoint, ContinuesWithTheLossesOfTheVersionThatWroteIt) {
  TemporaryFolder folder;
  const fs::path log = folder.path() / "log.jsonl";
  const Outcome outcome =
      run_ebb({"train", "--resume", kFolder + "/step-4", "--data", kFolder + "/text.txt", "--save",
               (folder.path() / "save").string(), "--log", log.string()},
              folder.path());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<nlohmann::json> expected = lines_of(content_of(kFolder + "/log.jsonl"));
  const std::vector<nlohmann::json> lines = lines_of(content_of(log));
  ASSERT_EQ(lines.size(), 5u);  // four steps and the end
  for (size_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(i + 5);
    const nlohmann::json& step = lines[i];
    const nlohmann::json& then = expected[i + 4];
    EXPECT_EQ(step["step"], then["step"]);
    EXPECT_EQ(step["tokens_seen"], then["tokens_seen"]);
    EXPECT_EQ(step["learning_rate"], then["learning_rate"]);
    // The same bits on the same type of machine; elsewhere kernels may round in another way. One
    // step changes the loss by 1e-3 or more.
    EXPECT_NEAR(step["loss"].get<double>(), then["loss"].get<double>(), 2e-4);
    EXPECT_NEAR(step["grad_norm"].get<double>(), then["grad_norm"].get<double>(), 2e-3);
  }
}

}  // namespace
}  // namespace ebb::test

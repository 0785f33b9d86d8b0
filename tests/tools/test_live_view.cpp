// The output of `ebb train`: the six lines of its header, and the summary of where the time went.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/tools/run_ebb.h"

namespace ebb {
namespace {

class LiveView : public testing::Test {
 protected:
  Outcome train(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {
        "train", "--preset",        "toy-bytes", "--data",       text_,    "--device",
        "host",  "--threads",       "2",         "--chunk-size", "256KiB", "--seq-length",
        "32",    "--device-memory", "4MiB",      "--steps",      "3"};
    return run_ebb(arguments + more, folder_.path());
  }

  const TemporaryFolder folder_;
  const std::string text_ = folder_.write("text", std::string(40000, 'x'));
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST_F(LiveView, TheHeaderIsSevenLinesWithoutASaveFolder) {
  const Outcome outcome = train();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  auto lines = lines_of(outcome.err);
  // Is there if other processes used this machine when it was measured.
  std::erase_if(lines, [](const std::string& line) { return line.find(" rates: ") != line.npos; });
  ASSERT_GT(lines.size(), 7u);
  const char* names[] = {"model ", "data ", "step ", "device ", "memory ", "plan ", "save "};
  for (size_t i = 0; i < 7; ++i) EXPECT_TRUE(lines[i].starts_with(names[i])) << lines[i];
  EXPECT_TRUE(lines[7].starts_with("step 1/3  loss ")) << lines[7];
  for (const char* part : {"device ", "chunk blocks ", "; host ", "momentum ", "variance "}) {
    EXPECT_SAYS(lines[4], part);
  }
  EXPECT_SAYS(lines[5], "tok/s");
  EXPECT_SAYS(lines[7], "  stall ");
}

TEST_F(LiveView, ADryRunShowsTheCandidatesOfThePlanner) {
  const Outcome outcome = train({"--dry-run"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_SAYS(outcome.out, "micro-batch ");
  EXPECT_SAYS(outcome.out, "machine ");
}

TEST_F(LiveView, TheSummarySaysWhereTheTimeWent) {
  const Outcome outcome = train();
  const auto lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 7u) << outcome.out;
  double shares[7];
  ASSERT_EQ(std::sscanf(lines[1].c_str(),
                        "time: compute %lf %%, waiting for updates %lf %%, loads %lf %%, stores "
                        "%lf %%, free blocks %lf %%, the norm %lf %%, rest %lf %%",
                        &shares[0], &shares[1], &shares[2], &shares[3], &shares[4], &shares[5],
                        &shares[6]),
            7)
      << lines[1];
  double sum = 0;
  for (const double share : shares) sum += share;
  EXPECT_NEAR(sum, 100, 0.4);
  EXPECT_GT(shares[0], 0);
  EXPECT_SAYS(lines[2], "loads ");
  EXPECT_SAYS(lines[2], " a step: weights ");
  EXPECT_SAYS(lines[2], " first use");
  EXPECT_SAYS(lines[3], "stores ");
  EXPECT_SAYS(lines[3], "gradients ");
  EXPECT_TRUE(lines[4].starts_with("layers ")) << lines[4];
  EXPECT_TRUE(lines[6].starts_with("state_hash ")) << lines[6];
}

}  // namespace
}  // namespace ebb

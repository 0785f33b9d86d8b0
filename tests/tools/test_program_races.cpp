// The threads of the whole program together, for ThreadSanitizer: it ends a program that has a data
// race with an exit code of its own, and writes a report to stderr.
#include <gtest/gtest.h>

#include <string>

#include "tests/tools/run_ebb.h"

namespace ebb {
namespace {

class ProgramRaces : public testing::Test {
 protected:
  Outcome run(const Arguments& arguments) const { return run_ebb(arguments, folder_.path()); }

  const TemporaryFolder folder_;
};

/// A thread writes each checkpoint while the training, its view and its log continue.
TEST_F(ProgramRaces, SavingWhileTrainingContinues) {
  const std::string text = folder_.write("text", std::string(40000, 'x'));
  const std::string folder = folder_.path().string();
  const Outcome outcome = run({"train",
                               "--preset",
                               "toy-bytes",
                               "--data",
                               text,
                               "--eval-data",
                               text,
                               "--eval-steps",
                               "2",
                               "--device",
                               "host",
                               "--threads",
                               "2",
                               "--chunk-size",
                               "256KiB",
                               "--seq-length",
                               "32",
                               "--device-memory",
                               "4MiB",
                               "--steps",
                               "6",
                               "--save",
                               folder + "/run",
                               "--save-steps",
                               "1",
                               "--log",
                               folder + "/log"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(std::filesystem::exists(folder + "/run/step-6"));
}

/// Two ranks, each of which writes its part.
TEST_F(ProgramRaces, RanksThatSaveWhileTrainingContinues) {
  const std::string text = folder_.write("text", std::string(40000, 'x'));
  const std::string folder = folder_.path().string();
  const Outcome outcome = run({"train",
                               "--preset",
                               "toy-bytes",
                               "--data",
                               text,
                               "--device",
                               "host",
                               "--ranks",
                               "2",
                               "--threads",
                               "2",
                               "--chunk-size",
                               "256KiB",
                               "--seq-length",
                               "32",
                               "--steps",
                               "4",
                               "--save",
                               folder + "/run",
                               "--save-steps",
                               "1",
                               "--gradient-accumulation",
                               "2"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(std::filesystem::exists(folder + "/run/step-4"));
}

/// Memory sizes and changes of flags are planned in threads of their own.
TEST_F(ProgramRaces, AdviceForARunThatDoesNotFit) {
  const Outcome outcome =
      run({"plan", "--preset", "gpt-6x384", "--machine", "rtx3060", "--micro-batch-size", "1",
           "--seq-length", "64", "--host-memory", "256MiB"});
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  EXPECT_SAYS(outcome.out, "GB of RAM would do");
}

}  // namespace
}  // namespace ebb

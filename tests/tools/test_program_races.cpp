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

  /// Saves after each of the steps.
  void train_and_save(int steps, const Arguments& more) const {
    const std::string saves = folder_.path().string() + "/run", last = std::to_string(steps);
    const Outcome outcome =
        run(Arguments{"train", "--preset", "toy-bytes", "--data", text_, "--device", "host",
                      "--threads", "2", "--steps", last, "--save", saves, "--save-steps", "1",
                      "--chunk-size", "256KiB", "--seq-length", "32"} +
            more);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_TRUE(std::filesystem::exists(saves + "/step-" + last));
  }

  const TemporaryFolder folder_;
  const std::string text_ = folder_.write("text", std::string(40000, 'x'));
};

/// A thread writes each checkpoint while the training, its view and its log continue.
TEST_F(ProgramRaces, SavingWhileTrainingContinues) {
  train_and_save(6, {"--eval-data", text_, "--eval-steps", "2", "--device-memory", "4MiB", "--log",
                     folder_.path().string() + "/log"});
}

/// Two ranks, each of which writes its part.
TEST_F(ProgramRaces, RanksThatSaveWhileTrainingContinues) {
  train_and_save(4, {"--ranks", "2", "--gradient-accumulation", "2"});
}

/// Memory sizes and changes of flags are planned in threads of their own.
TEST_F(ProgramRaces, AdviceForARunThatDoesNotFit) {
  const Outcome outcome =
      run({"plan", "--preset", "gpt-6x384", "--machine", "rtx3060", "--micro-batch-size", "1",
           "--seq-length", "64", "--host-memory", "256MiB"});
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  EXPECT_SAYS(outcome.out, "GB of RAM is enough");
}

}  // namespace
}  // namespace ebb

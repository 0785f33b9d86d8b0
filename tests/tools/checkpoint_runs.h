// Helpers of the tests that save and resume small runs of `ebb train`.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/run_ebb.h"

namespace ebb::test {

/// Each step has two micro-batches. Epochs end in step 3 and in step 6.
class CheckpointRuns : public testing::Test {
 protected:
  /// Returns the arguments of `ebb train` for 8 steps of a toy model, with a log. A flag in `more`
  /// replaces the default of the same flag.
  Arguments train(const Arguments& more = {}) const;
  Outcome run(const Arguments& arguments) const { return run_ebb(arguments, folder_.path()); }
  /// Runs `ebb`, expects exit code 0, and returns the outcome.
  Outcome succeed(const Arguments& arguments) const;

  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string save() const { return path("save"); }
  /// Returns the path of the checkpoint of a step.
  std::string saved(int step) const { return save() + "/step-" + std::to_string(step); }
  /// Returns the sorted names of the files in the folder of checkpoints.
  std::vector<std::string> names_saved() const;

  /// Returns the lines of the log without the fields that depend on time or memory.
  std::vector<nlohmann::json> log() const;
  /// Returns the same lines of a run that was never interrupted.
  std::vector<nlohmann::json> whole() const;

  TemporaryFolder folder_;
  std::string text_;
  std::string log_ = path("log.jsonl");

  void SetUp() override;
};

}  // namespace ebb::test

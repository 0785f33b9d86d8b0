// Common code of tests with small runs of `ebb train` that save and resume.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/run_ebb.h"

namespace ebb::test {

using Arguments = std::vector<std::string>;

/// Two micro-batches a step; an epoch ends in step 3 and in step 6.
class CheckpointRuns : public testing::Test {
 protected:
  /// `ebb train` on a toy, 8 steps with a log; a flag in `more` replaces its default.
  Arguments train(const Arguments& more = {}) const;
  Outcome run(const Arguments& arguments) const { return run_ebb(arguments, folder_.path()); }
  /// The outcome of a run that must succeed.
  Outcome succeed(const Arguments& arguments) const;

  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string save() const { return path("save"); }
  /// "save/step-N"
  std::string saved(int step) const { return save() + "/step-" + std::to_string(step); }
  /// Names in the folder of checkpoints, sorted.
  std::vector<std::string> names_saved() const;

  /// Lines of the log, less what depends on time and placement.
  std::vector<nlohmann::json> log() const;
  /// The lines of the log of a run that is never interrupted.
  std::vector<nlohmann::json> whole() const;

  TemporaryFolder folder_;
  std::string text_;
  std::string log_ = path("log.jsonl");

  void SetUp() override;
};

}  // namespace ebb::test

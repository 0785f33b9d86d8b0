// What the tests of `ebb plan` share: the command in a folder of its own, and two trainings.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/json_text.h"
#include "tests/tools/run_ebb.h"

namespace ebb {

class PlanCommand : public testing::Test {
 protected:
  Outcome run(const Arguments& arguments) const { return run_ebb(arguments, folder_.path()); }
  Outcome plan(const Arguments& arguments) const { return run(Arguments{"plan"} + arguments); }

  nlohmann::json plan_json(const Arguments& arguments, int exit_code = 0) const {
    const Outcome outcome = plan(arguments + Arguments{"--json"});
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.out << outcome.err;
    return parse_json(outcome.out);
  }

  const TemporaryFolder folder_;
};

inline const Arguments kToy = {"--preset",
                               "toy-bytes",
                               "--chunk-size",
                               "256KiB",
                               "--seq-length",
                               "32",
                               "--threads",
                               "2",
                               "--device",
                               "host",
                               "--gradient-accumulation",
                               "2"};

/// A model on a machine whose device is too small for it.
inline const Arguments kLarge = {"--preset",
                                 "gpt3-6.7b",
                                 "--machine",
                                 "rtx4090",
                                 "--micro-batch-size",
                                 "4",
                                 "--gradient-accumulation",
                                 "4"};

}  // namespace ebb

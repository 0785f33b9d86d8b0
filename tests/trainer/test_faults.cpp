#include <gtest/gtest.h>

#include "tests/trainer/fault_drill.h"

namespace ebb::test {
namespace {

constexpr uint64_t kMost = 100;  // of each kind; the slow tests fail every one

TEST(Faults, Allocations) { fail_operations(FaultSite::Allocation, kMost); }
TEST(Faults, Copies) { fail_operations(FaultSite::Copy, kMost); }
TEST(Faults, Launches) { fail_operations(FaultSite::Launch, kMost); }
TEST(Faults, CopiesInAnEvaluation) { fail_evaluations(FaultSite::Copy); }
TEST(Faults, NothingFollowsAStepThatFailed) { fail_steps_twice(); }
TEST(Faults, LaunchesInAnEvaluation) { fail_evaluations(FaultSite::Launch); }

}  // namespace
}  // namespace ebb::test

#include <gtest/gtest.h>

#include "tests/trainer/fault_drill.h"

namespace ebb::test {
namespace {

TEST(FaultsSlow, EveryAllocation) { fail_operations(FaultSite::Allocation, UINT64_MAX); }
TEST(FaultsSlow, EveryCopy) { fail_operations(FaultSite::Copy, UINT64_MAX); }
TEST(FaultsSlow, EveryLaunch) { fail_operations(FaultSite::Launch, UINT64_MAX); }

}  // namespace
}  // namespace ebb::test

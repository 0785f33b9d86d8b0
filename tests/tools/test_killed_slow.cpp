#include "tests/tools/kill_drill.h"

namespace ebb::test {
namespace {

TEST_F(KillDrill, AHundredTimes) {
  drill(100, std::chrono::milliseconds(1500), 40);
  EXPECT_GT(num_unfinished(), 0) << "no run was killed while it saved";
}

}  // namespace
}  // namespace ebb::test

#include "tests/tools/kill_drill.h"

namespace ebb::test {
namespace {

TEST_F(KillDrill, AHundredTimes) { drill(100, std::chrono::milliseconds(1500), 40); }

}  // namespace
}  // namespace ebb::test

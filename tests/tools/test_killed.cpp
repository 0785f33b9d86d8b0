// kill -9 loses no checkpoint. The slow tests kill a hundred runs.
#include "tests/tools/kill_drill.h"

namespace ebb::test {
namespace {

TEST_F(KillDrill, AFewTimes) { drill(6, std::chrono::milliseconds(800), 12); }

}  // namespace
}  // namespace ebb::test

// kill -9 loses nothing that was saved. The slow set does it a hundred times.
#include "tests/tools/kill_drill.h"

namespace ebb::test {
namespace {

TEST_F(KillDrill, AFewTimes) { drill(6, std::chrono::milliseconds(800), 12); }

}  // namespace
}  // namespace ebb::test

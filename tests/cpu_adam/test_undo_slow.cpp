// Undo of 10^8 values with random bits, for several weight types.
#include <gtest/gtest.h>

#include "system/thread_team.h"
#include "tests/cpu_adam/undo_cases.h"

namespace ebb::test {
namespace {

constexpr int64_t kCount = int64_t{1} << 22;
constexpr int64_t kValues = 100'000'000;  // in three planes

void undo_any_bits(Types types, Pattern pattern) {
  ThreadTeam team(2);
  State state(kCount, types);
  LogMemory memory(undo_log_bytes(kCount, 3 * kCount));
  UndoLog log(memory.span());
  const AdamWRange all{.first = 0, .count = kCount};
  for (int64_t done = 0; done < kValues; done += 3 * kCount) {
    fill_with_bits(state.planes(), kCount, {pattern, static_cast<uint64_t>(done)});
    const std::vector<std::byte> before = state.bits();
    const AdamWStep step{.learning_rate = 1e-3, .adam = {}, .t = 1 + done % 1000};
    ASSERT_TRUE(update_with_log(team, state.planes(), kCount, {&all, 1}, step, log));
    ASSERT_FALSE(state.bits() == before);
    undo_update(team, state.planes(), kCount, {&all, 1}, log);
    ASSERT_TRUE(state.bits() == before) << done;
  }
}

TEST(UndoAnyBits, SplitMasters) { undo_any_bits({DType::BF16, DType::BF16}, Pattern::Any); }
TEST(UndoAnyBits, FloatMasters) { undo_any_bits({DType::F32, DType::F32}, Pattern::Any); }
TEST(UndoAnyBits, SpecialValues) { undo_any_bits({DType::BF16, DType::F32}, Pattern::Special); }

}  // namespace
}  // namespace ebb::test

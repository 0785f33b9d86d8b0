#include <gtest/gtest.h>

#include <set>

#include "scheduler/program.h"
#include "tests/scheduler/plan_cases.h"

namespace ebb {
namespace {

using test::Case;

std::vector<std::pair<ChunkId, Touch>> uses(const Program& program, const ProgramItem& item) {
  std::vector<std::pair<ChunkId, Touch>> result;
  for (const ChunkUse& use : program.uses_of(item)) {
    result.push_back({program.chunk_id(use.chunk), use.touch});
  }
  return result;
}
using Uses = std::vector<std::pair<ChunkId, Touch>>;

TEST(Program, FinishesAChunkAfterItsLastContribution) {
  const Case c = test::make_case_from_text("r0 r1 w1 w0", 2, 65536, 2);
  const Program program = make_program(c.trace, c.layout, true);
  ASSERT_EQ(program.items.size(), 6u);
  EXPECT_EQ(program.items[2].moment, 2u);
  EXPECT_EQ(program.items[3].finished_chunk, 1u);
  EXPECT_EQ(program.items[4].moment, 3u);
  EXPECT_EQ(program.items[5].finished_chunk, 0u);
  // A chunk of 65,536 bf16 weights has two chunks of fp32 sums.
  EXPECT_EQ(uses(program, program.items[2]), (Uses{{{Space::Weights, 1}, Touch::Read},
                                                   {{Space::GradientSums, 2}, Touch::Create},
                                                   {{Space::GradientSums, 3}, Touch::Create}}));
  EXPECT_EQ(uses(program, program.items[3]), (Uses{{{Space::GradientSums, 2}, Touch::Update},
                                                   {{Space::GradientSums, 3}, Touch::Update},
                                                   {{Space::Gradients, 1}, Touch::Create}}));
  EXPECT_EQ(finish_order(c.trace, c.layout), (std::vector<uint32_t>{1, 0}));
}

TEST(Program, LaterContributionsAddToWhatIsThere) {
  const Case c = test::make_case_from_text("w0 w0", 1, 100, 0);
  const Program program = make_program(c.trace, c.layout, true);
  ASSERT_EQ(program.items.size(), 3u);
  EXPECT_EQ(uses(program, program.items[0])[1].second, Touch::Create);
  EXPECT_EQ(uses(program, program.items[1])[1].second, Touch::Update);
}

TEST(Program, AChunkThatIsReadAgainIsNotFinishedYet) {
  const Case c = test::make_case_from_text("r0 w0 r0", 1, 100, 1);
  const Program program = make_program(c.trace, c.layout, true);
  ASSERT_EQ(program.items.size(), 4u);
  EXPECT_EQ(program.items[3].finished_chunk, 0u);
}

TEST(Program, AnEvaluationFinishesNothing) {
  const Case c = test::make_case_from_text("r0 r1", 2, 65536, 2);
  const Program program = make_program(c.trace, c.layout, false);
  EXPECT_EQ(program.items.size(), 2u);
  EXPECT_TRUE(finish_order(c.trace, c.layout).empty());
}

TEST(Program, AMomentNamesAChunkOnce) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Case c = test::make_any_case(seed);
    const Program program = make_program(c.trace, c.layout, true);
    for (const ProgramItem& item : program.items) {
      std::set<uint32_t> seen;
      for (const ChunkUse& use : program.uses_of(item)) EXPECT_TRUE(seen.insert(use.chunk).second);
    }
  }
}

TEST(Program, ArenaChunksLiveAsLongAsTheirSpans) {
  Case c = test::make_case_from_text("r0 r0 r0 r0 r0 r0", 1, 100, 6);
  const size_t chunk = c.layout.chunk_bytes();
  c.trace.arena_bytes = 2 * chunk;
  c.trace.activations = {{0, 256, 0, 0},
                         {256, 256, 1, 2},          // one life: there is no gap
                         {chunk - 256, 512, 2, 3},  // straddles
                         {0, 256, 5, 5}};
  const auto lives = [](const Program& program, const ProgramItem& item) {
    std::string text;
    for (int e = 0; e < kNumArenaChunkEvents; ++e) {
      for (uint32_t chunk : program.chunks_of(item, static_cast<ArenaChunkEvent>(e))) {
        text += "+zw-"[e] + std::to_string(program.chunk_id(chunk).index);
      }
    }
    return text;
  };
  const auto expect_lives = [&](std::array<const char*, 6> expected) {
    const Program program = make_program(c.trace, c.layout, false);
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(lives(program, program.items[i]), expected[i]) << i;
  };
  expect_lives({"+0", "", "+1", "-0-1", "", "+0-0"});
  // A chunk rests while all that lives in it rests.
  c.trace.activations = {{0, 256, 0, 5}, {256, 256, 1, 2}, {chunk, 256, 0, 5}};
  c.trace.rests = {{0, 0, 5}, {2, 1, 3}, {2, 3, 5}};
  expect_lives({"+0+1", "z1", "z0", "z1w1", "", "w0w1-0-1"});
}

TEST(Program, DenseNumbersAreAllSpacesInARow) {
  const Case c = test::make_any_case(3);
  const Program program = make_program(c.trace, c.layout, true);
  for (uint32_t i = 0; i < program.num_dense(); ++i) {
    EXPECT_EQ(program.dense(program.chunk_id(i)), i);
  }
}

}  // namespace
}  // namespace ebb

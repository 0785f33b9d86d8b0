#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "scheduler/plan/chunk_trace.h"
#include "scheduler/plan/index_set.h"
#include "scheduler/plan/residency.h"
#include "tests/scheduler/plan_cases.h"

namespace ebb {
namespace {

using test::Case;

std::vector<std::pair<ChunkId, Touch>> uses(const ChunkTrace& chunk_trace,
                                            const ChunkTraceItem& item) {
  std::vector<std::pair<ChunkId, Touch>> result;
  for (const ChunkUse& use : chunk_trace.uses_of(item)) {
    result.push_back({chunk_trace.chunk_id(use.chunk), use.touch});
  }
  return result;
}
using Uses = std::vector<std::pair<ChunkId, Touch>>;

TEST(ChunkTrace, RoundsAChunkAfterItsLastContribution) {
  const Case c = test::make_case_from_text("r0 r1 w1 w0", 2, 65536, 2);
  const ChunkTrace chunk_trace = make_chunk_trace(c.trace, c.layout, true);
  ASSERT_EQ(chunk_trace.items.size(), 6u);
  EXPECT_EQ(chunk_trace.items[2].call, 2u);
  EXPECT_EQ(chunk_trace.items[3].rounded_chunk, 1u);
  EXPECT_EQ(chunk_trace.items[4].call, 3u);
  EXPECT_EQ(chunk_trace.items[5].rounded_chunk, 0u);
  // A chunk of 65,536 bf16 weights has two chunks of fp32 sums.
  EXPECT_EQ(uses(chunk_trace, chunk_trace.items[2]),
            (Uses{{{Space::Weights, 1}, Touch::Read},
                  {{Space::GradientSums, 2}, Touch::Create},
                  {{Space::GradientSums, 3}, Touch::Create}}));
  EXPECT_EQ(uses(chunk_trace, chunk_trace.items[3]),
            (Uses{{{Space::GradientSums, 2}, Touch::Update},
                  {{Space::GradientSums, 3}, Touch::Update},
                  {{Space::Gradients, 1}, Touch::Create}}));
  EXPECT_EQ(round_order(c.trace, c.layout), (std::vector{ChunkIndex(1), ChunkIndex(0)}));
}

TEST(ChunkTrace, LaterContributionsAreAdded) {
  const Case c = test::make_case_from_text("w0 w0", 1, 100, 0);
  const ChunkTrace chunk_trace = make_chunk_trace(c.trace, c.layout, true);
  ASSERT_EQ(chunk_trace.items.size(), 3u);
  EXPECT_EQ(uses(chunk_trace, chunk_trace.items[0])[1].second, Touch::Create);
  EXPECT_EQ(uses(chunk_trace, chunk_trace.items[1])[1].second, Touch::Update);
}

TEST(ChunkTrace, AChunkThatIsReadAgainIsRoundedLater) {
  const Case c = test::make_case_from_text("r0 w0 r0", 1, 100, 1);
  const ChunkTrace chunk_trace = make_chunk_trace(c.trace, c.layout, true);
  ASSERT_EQ(chunk_trace.items.size(), 4u);
  EXPECT_EQ(chunk_trace.items[3].rounded_chunk, 0u);
}

TEST(ChunkTrace, AUseOfSomeRowsNeedsOnlyTheirChunks) {
  const Case c = test::make_case(
      {.num_layers = 1, .tied = true, .num_head_slices = 3, .max_elements = 600'000}, 8);
  const Layout& layout = c.layout;
  const uint64_t rows = layout.num_elements(0), chunk = layout.chunk_elements();
  ASSERT_GT(rows, 4 * chunk);
  const ChunkTrace chunk_trace = make_chunk_trace(c.trace, layout, true);
  const uint64_t extra = layout.first_sum_element(0, 1);
  const auto chunks_of = [&](Space space, uint64_t first, uint64_t last, uint64_t size,
                             Touch touch) {
    Uses all;
    for (uint64_t i = first / size; i <= (last - 1) / size; ++i) {
      all.push_back({{space, static_cast<uint32_t>(i)}, touch});
    }
    return all;
  };
  const uint64_t cuts[] = {0, rows / 3, rows * 2 / 3, rows};
  std::vector<uint32_t> gradient_items;
  for (uint32_t i = 0; i < chunk_trace.items.size(); ++i) {
    const ChunkTraceItem& item = chunk_trace.items[i];
    if (item.call == kNone || c.trace.calls[item.call].name != "gradient") continue;
    gradient_items.push_back(i);
  }
  ASSERT_EQ(gradient_items.size(), 3u);
  for (size_t k = 0; k < 3; ++k) {
    const size_t s = 2 - k;
    const Uses got = uses(chunk_trace, chunk_trace.items[gradient_items[k]]);
    Uses want = chunks_of(Space::Weights, cuts[s], cuts[s + 1], chunk, Touch::Read);
    Uses sums = chunks_of(Space::GradientSums, extra + cuts[s], extra + cuts[s + 1], chunk / 2,
                          Touch::Create);
    // A chunk that the previous slice has already written is updated, not created.
    const uint64_t before = (extra + cuts[s + 1]) / (chunk / 2);
    if (k > 0 && sums.back().first.index == before) sums.back().second = Touch::Update;
    want.insert(want.end(), sums.begin(), sums.end());
    EXPECT_EQ(got, want) << "slice " << s;
    EXPECT_LT(want.size(), rows / chunk * 3 / 2);
  }
}

TEST(ChunkTrace, AChunkOfTwoSlicesIsRoundedAfterBoth) {
  Case c = test::make_case_from_text("w0 w0 w0", 1, 3 * 65536, 0);
  const int64_t half = 3 * 65536 / 2;
  c.trace.calls.pop_back();
  c.trace.uses[0].rows = {half, half};
  c.trace.uses[1].rows = {0, half};
  Layout layout({{.name = "p", .shape = {2 * half, 1}}}, {0}, DType::BF16, DType::BF16, 128 << 10);
  EXPECT_EQ(round_order(c.trace, layout),
            (std::vector{ChunkIndex(2), ChunkIndex(0), ChunkIndex(1)}));
  const ChunkTrace chunk_trace = make_chunk_trace(c.trace, layout, true);
  EXPECT_EQ(chunk_trace.items[1].rounded_chunk, 2u);
}

TEST(ChunkTrace, DeviceUpdatesFollowTheRoundingOrTheLastItem) {
  const Case c = test::make_case_from_text("r0 r1 w1 w0", 2, 65536, 2);
  const ChunkTrace plain = make_chunk_trace(c.trace, c.layout, true);
  const Uses of_chunk_1{{{Space::Weights, 1}, Touch::Create}, {{Space::Gradients, 1}, Touch::Read}};
  for (const bool at_end : {false, true}) {
    const UpdateTime time = at_end ? UpdateTime::AfterNorm : UpdateTime::Early;
    const std::vector<ChunkRecord> records = {{.update = time},
                                              {.tier = Tier::Device, .update = time}};
    const ChunkTrace chunk_trace = with_updates(plain, c.layout, records);
    ASSERT_EQ(chunk_trace.items.size(), 7u);
    const size_t at = at_end ? 6 : 4;
    EXPECT_EQ(chunk_trace.items[at].updated_chunk, 1u);
    EXPECT_EQ(uses(chunk_trace, chunk_trace.items[at]), of_chunk_1);
    // All other items are unchanged.
    for (size_t i = 0; i < plain.items.size(); ++i) {
      const ChunkTraceItem& item = chunk_trace.items[i < at ? i : i + 1];
      EXPECT_EQ(item.call, plain.items[i].call);
      EXPECT_EQ(item.rounded_chunk, plain.items[i].rounded_chunk);
      EXPECT_EQ(uses(chunk_trace, item), uses(plain, plain.items[i]));
    }
    const FlatIndex weights = chunk_trace.flat_index({Space::Weights, 1});
    const NeedIndex last_need = chunk_trace.needs_of_chunk[chunk_trace.first_need[weights + 1] - 1];
    EXPECT_EQ(chunk_trace.needs[last_need].item, at);
  }
}

TEST(ChunkTrace, AnEvaluationRoundsNothing) {
  const Case c = test::make_case_from_text("r0 r1", 2, 65536, 2);
  const ChunkTrace chunk_trace = make_chunk_trace(c.trace, c.layout, false);
  EXPECT_EQ(chunk_trace.items.size(), 2u);
  EXPECT_TRUE(round_order(c.trace, c.layout).empty());
}

TEST(ChunkTrace, ACallNamesAChunkOnce) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Case c = test::make_any_case(seed);
    const ChunkTrace chunk_trace = make_chunk_trace(c.trace, c.layout, true);
    for (const ChunkTraceItem& item : chunk_trace.items) {
      std::set<uint32_t> seen;
      for (const ChunkUse& use : chunk_trace.uses_of(item))
        EXPECT_TRUE(seen.insert(use.chunk).second);
    }
  }
}

ActivationSpan span(size_t offset, size_t bytes, int first_call, int last_call) {
  return {offset, bytes, CallIndex(first_call), CallIndex(last_call)};
}
IdleInterval idle(uint32_t span, int last_before, int first_after) {
  return {span, CallIndex(last_before), CallIndex(first_after)};
}

TEST(ChunkTrace, ArenaChunksAreAllocatedAsLongAsTheirSpans) {
  Case c = test::make_case_from_text("r0 r0 r0 r0 r0 r0", 1, 100, 6);
  const size_t chunk = c.layout.chunk_bytes();
  c.trace.arena_bytes = 2 * chunk;
  c.trace.activations = {span(0, 256, 0, 0),
                         span(256, 256, 1, 2),          // no gap: the same chunk stays allocated
                         span(chunk - 256, 512, 2, 3),  // lies in two chunks
                         span(0, 256, 5, 5)};
  const auto lives = [](const ChunkTrace& chunk_trace, const ChunkTraceItem& item) {
    std::string text;
    for (int e = 0; e < kNumArenaChunkEvents; ++e) {
      for (const FlatIndex chunk : chunk_trace.chunks_of(item, static_cast<ArenaChunkEvent>(e))) {
        text += "+zw-"[e] + std::to_string(chunk_trace.chunk_id(chunk).index);
      }
    }
    return text;
  };
  const auto expect_lives = [&](std::array<const char*, 6> expected) {
    const ChunkTrace chunk_trace = make_chunk_trace(c.trace, c.layout, false);
    for (size_t i = 0; i < 6; ++i)
      EXPECT_EQ(lives(chunk_trace, chunk_trace.items[i]), expected[i]) << i;
  };
  expect_lives({"+0", "", "+1", "-0-1", "", "+0-0"});
  // A chunk is idle while all activations in it are idle.
  c.trace.activations = {span(0, 256, 0, 5), span(256, 256, 1, 2), span(chunk, 256, 0, 5)};
  c.trace.idle_intervals = {idle(0, 0, 5), idle(2, 1, 3), idle(2, 3, 5)};
  expect_lives({"+0+1", "z1", "z0", "z1w1", "", "w0w1-0-1"});
}

TEST(ChunkTrace, ListsTheItemsThatNeedEachChunk) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Case c = test::make_any_case(seed);
    const ChunkTrace chunk_trace = make_chunk_trace(c.trace, c.layout, true);
    std::vector<std::set<uint32_t>> expected(chunk_trace.num_flat());  // [chunk] items
    for (uint32_t i = 0; i < chunk_trace.items.size(); ++i) {
      const ChunkTraceItem& item = chunk_trace.items[i];
      for (const ChunkUse& use : chunk_trace.uses_of(item)) expected[use.chunk].insert(i);
      for (const ArenaChunkEvent event : {ArenaChunkEvent::Begin, ArenaChunkEvent::Needed}) {
        for (const uint32_t chunk : chunk_trace.chunks_of(item, event)) expected[chunk].insert(i);
      }
    }
    const auto key = [](const Need& need) { return std::pair(need.item, need.chunk); };
    EXPECT_TRUE(std::ranges::is_sorted(chunk_trace.needs, {}, key));
    for (uint32_t chunk = 0; chunk < chunk_trace.num_flat(); ++chunk) {
      std::set<uint32_t> items;
      for (uint32_t k = chunk_trace.first_need[chunk]; k < chunk_trace.first_need[chunk + 1]; ++k) {
        const Need& need = chunk_trace.needs[chunk_trace.needs_of_chunk[k]];
        EXPECT_EQ(need.chunk, chunk);
        items.insert(items.end(), need.item);
      }
      EXPECT_EQ(items, expected[chunk]) << "seed " << seed << ", chunk " << chunk;
    }
  }
}

TEST(ChunkTrace, PeakCountsChunksFromTheirFirstItemToTheirLast) {
  Case c = test::make_case_from_text("r0 r1 r2 r0", 3, 65536, 4);
  EXPECT_EQ(peak_of_chunks(make_chunk_trace(c.trace, c.layout, false)), 2u);
  c.trace.arena_bytes = 2 * c.layout.chunk_bytes();
  c.trace.activations = {span(0, 256, 1, 3), span(c.layout.chunk_bytes(), 256, 2, 2)};
  c.trace.idle_intervals = {idle(0, 1, 3)};  // an idle chunk counts
  EXPECT_EQ(peak_of_chunks(make_chunk_trace(c.trace, c.layout, false)), 4u);
  EXPECT_EQ(peak_of_chunks(ChunkTrace{}), 0u);
}

TEST(IndexSet, FindsItsGreatestIndex) {
  std::mt19937 random(1);
  for (const uint32_t size : {1u, 64u, 65u, 4096u, 4097u, 300'000u}) {
    IndexSet set(size);
    std::set<uint32_t> expected;
    for (int i = 0; i < 3000; ++i) {
      const uint32_t index = random() % size;
      if (random() % 2 == 0) {
        set.insert(index);
        expected.insert(index);
      } else {
        const uint32_t leaves = expected.empty() ? index : *expected.rbegin();
        set.erase(leaves);
        expected.erase(leaves);
      }
      ASSERT_EQ(set.empty(), expected.empty());
      if (expected.empty()) continue;
      ASSERT_EQ(set.greatest(), *expected.rbegin()) << size;
    }
  }
  EXPECT_TRUE(IndexSet(0).empty());
}

using Freed = FreedBlocks::Freed;

TEST(FreedBlocks, AreOrderedByTimeAndThenByNumber) {
  std::mt19937 random(1);
  FreedBlocks freed;
  std::set<Freed> expected;
  for (uint32_t order = 1; order < 300; ++order) {
    for (uint32_t num = random() % 9; num > 0; --num) {
      const Freed one{order + static_cast<uint32_t>(random() % 20), BlockIndex(random() % 200)};
      if (expected.insert(one).second) freed.add(one);
    }
    for (uint32_t num = random() % 9; num > 0 && !expected.empty(); --num) {
      auto leaves = expected.begin();
      switch (random() % 3) {
        case 0:
          ASSERT_EQ(freed.first(), *leaves);
          ASSERT_EQ(freed.take_first(), leaves->block);
          break;
        case 1:
          std::advance(leaves, random() % expected.size());
          freed.remove(*leaves);
          break;
        default: {
          const size_t but = random() % 4;
          const auto is_free = [&](const Freed& f) { return f.order <= order; };
          const auto num_free = static_cast<size_t>(std::ranges::count_if(expected, is_free));
          if (num_free > but) std::advance(leaves, num_free - but - 1);
          ASSERT_EQ(freed.take_late(order, but), leaves->block);
        }
      }
      expected.erase(leaves);
    }
    ASSERT_EQ(freed.empty(), expected.empty());
  }
}

TEST(ChunkTrace, FlatIndicesCountTheChunksOfAllSpaces) {
  const Case c = test::make_any_case(3);
  const ChunkTrace chunk_trace = make_chunk_trace(c.trace, c.layout, true);
  for (FlatIndex i{0}; i < chunk_trace.num_flat(); ++i) {
    EXPECT_EQ(chunk_trace.flat_index(chunk_trace.chunk_id(i)), i);
  }
}

}  // namespace
}  // namespace ebb

#include <gtest/gtest.h>

#include <numeric>

#include "chunk/layout.h"

namespace ebb::tests_of_layout {
namespace {

constexpr size_t kChunk = 128 << 10;  // 65,536 elements of bf16

std::vector<ParameterInfo> infos(std::initializer_list<int64_t> sizes) {
  std::vector<ParameterInfo> list;
  for (int64_t n : sizes) list.push_back({.name = "p", .shape = {n}});
  return list;
}

std::vector<ParameterId> in_order(size_t n) {
  std::vector<ParameterId> order(n);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

TEST(Layout, ParametersAreInCallOrderAndAlignedTo256Bytes) {
  const Layout layout(infos({100, 1, 129}), {2, 0, 1}, DType::BF16, DType::BF16, kChunk);
  EXPECT_EQ(layout.first_element(2), 0u);
  EXPECT_EQ(layout.first_element(0), 256u);  // 129 elements take two units of 128
  EXPECT_EQ(layout.first_element(1), 384u);
  EXPECT_EQ(layout.num_space_elements(), 512u);
  EXPECT_EQ(layout.num_model_parameters(), 230u);
  const Layout wide(infos({100, 1, 129}), {2, 0, 1}, DType::F32, DType::F32, 2 * kChunk);
  EXPECT_EQ(wide.first_element(0), 192u);  // a unit has 64 fp32 elements
}

TEST(Layout, CountsChunksOfEverySpace) {
  const Layout layout(infos({65536, 1}), in_order(2), DType::BF16, DType::F32, kChunk);
  EXPECT_EQ(layout.num_chunks(Space::Weights), 2u);
  EXPECT_EQ(layout.num_chunks(Space::GradientSums), 3u);
  EXPECT_EQ(layout.num_chunks(Space::Gradients), 3u);
  EXPECT_EQ(layout.gradient_chunks_per_chunk(), 2u);
  EXPECT_EQ(layout.chunk_elements(), 65536u);
  EXPECT_EQ(layout.chunk_elements(ChunkIndex(0)), 65536u);
  EXPECT_EQ(layout.chunk_elements(ChunkIndex(1)), 128u);
  EXPECT_EQ(layout.used_bytes({Space::Weights, 0}), kChunk);
  EXPECT_EQ(layout.used_bytes({Space::Weights, 1}), 256u);
  EXPECT_EQ(layout.used_bytes({Space::GradientSums, 1}), kChunk);
  EXPECT_EQ(layout.used_bytes({Space::GradientSums, 2}), 512u);
  EXPECT_EQ(layout.num_pieces(), 2u);
}

TEST(Layout, OneElementMoreThanAChunkTakesTwoChunks) {
  for (int64_t extra : {-1, 0, 1}) {
    const Layout layout(infos({65536 + extra}), {0}, DType::BF16, DType::BF16, kChunk);
    EXPECT_EQ(layout.num_chunks(), extra > 0 ? 2u : 1u) << extra;
    EXPECT_EQ(layout.used_bytes({Space::Weights, 0}), kChunk) << extra;
  }
}

TEST(Layout, ParametersMaySpanChunks) {
  const Layout layout(infos({60000, 150000}), in_order(2), DType::BF16, DType::BF16, kChunk);
  const ChunkRange range = layout.chunks(Space::Weights, layout.first_element(1), 150000);
  EXPECT_EQ(range.first, 0u);
  EXPECT_EQ(range.last, 4u);
  ASSERT_EQ(layout.segments(ChunkIndex(0)).size(), 2u);
  EXPECT_EQ(layout.segments(ChunkIndex(0))[1].parameter, 1u);
  EXPECT_EQ(layout.segments(ChunkIndex(0))[1].first_element, layout.first_element(1));
  uint64_t covered = 0;
  for (ChunkIndex c{0}; c < layout.num_chunks(); ++c) {
    for (const Segment& segment : layout.segments(c)) {
      EXPECT_GE(segment.first_element, c * layout.chunk_elements());
      EXPECT_LE(segment.first_element + segment.num_elements, (c + 1) * layout.chunk_elements());
      covered += segment.num_elements;
    }
  }
  EXPECT_EQ(covered, layout.num_model_parameters());
}

TEST(Layout, NoChunkHasOnlyPadding) {
  const Layout layout(infos({65536, 65536, 65536}), in_order(3), DType::BF16, DType::BF16, kChunk);
  ASSERT_EQ(layout.num_chunks(), 3u);
  for (ChunkIndex c{0}; c < 3; ++c) {
    ASSERT_EQ(layout.segments(c).size(), 1u);
    EXPECT_EQ(layout.segments(c)[0].parameter, c);
  }
}

TEST(Layout, TiedWeightsHaveASumForEachUse) {
  auto list = infos({1000, 300});
  list[0].num_uses = 3;
  const Layout layout(std::move(list), in_order(2), DType::BF16, DType::BF16, kChunk);
  EXPECT_EQ(layout.first_sum_element(0, 0), 0u);
  EXPECT_EQ(layout.first_sum_element(1, 0), 1024u);
  EXPECT_EQ(layout.first_sum_element(0, 1), layout.num_space_elements());
  EXPECT_EQ(layout.first_sum_element(0, 2), layout.num_space_elements() + 1024);
  EXPECT_EQ(layout.num_chunks(Space::Gradients), 1u);
  EXPECT_THROW(layout.first_sum_element(1, 1), LogicError);
}

TEST(Layout, InvalidSizesAreRejected) {
  const auto make = [](size_t chunk_bytes, DType weight, DType gradient) {
    return Layout(infos({10}), {0}, weight, gradient, chunk_bytes);
  };
  EXPECT_NO_THROW(make(kChunk, DType::BF16, DType::F32));
  EXPECT_THROW(make(0, DType::BF16, DType::BF16), ConfigError);
  EXPECT_THROW(make(kChunk + 256, DType::BF16, DType::BF16), ConfigError);
  EXPECT_THROW(make(kChunk, DType::F32, DType::F32), ConfigError);  // half a piece
  EXPECT_THROW(make(2 * kChunk, DType::F32, DType::BF16), ConfigError);
  EXPECT_THROW(Layout(infos({10, 10}), {0}, DType::BF16, DType::BF16, kChunk), LogicError);
}

}  // namespace
}  // namespace ebb::tests_of_layout

// The home follows the table of planes: also planes whose elements share something in groups.
#include <gtest/gtest.h>

#include <array>

#include "chunk/home.h"

namespace ebb::test {
namespace {

constexpr std::array kPlanes = {
    PlaneInfo{.name = "weight", .type = DType::F32, .bytes_per_group = 4, .is_copied = true},
    PlaneInfo{// a byte for each element and an fp32 scale for 64 elements
              .name = "scaled",
              .type = DType::F32,
              .bytes_per_group = 68,
              .elements_per_group = 64},
};

TEST(Home, StoresPlanesInGroups) {
  constexpr uint64_t kChunkElements = 65536;
  const Layout layout({{.name = "w", .shape = {3 * kChunkElements}}}, {0}, DType::F32, DType::F32,
                      kChunkElements * sizeof(float));
  Ledger ledger;
  add_home(ledger, layout, kPlanes, {});
  EXPECT_EQ(ledger.bytes("weight", Tier::Host), 3 * kChunkElements * 4);
  EXPECT_EQ(ledger.bytes("scaled", Tier::Host), 3 * kChunkElements / 64 * 68);
  EXPECT_EQ(copied_bytes(layout, kPlanes, {}), 3 * kChunkElements * 4);
  const auto device = create_device({});
  const Home home(*device, layout, kPlanes, {});
  EXPECT_EQ(home.plane(0, ChunkIndex(2)) - home.plane(0, ChunkIndex(0)), 2 * kChunkElements * 4);
  EXPECT_EQ(home.plane(1, ChunkIndex(2)) - home.plane(1, ChunkIndex(0)),
            2 * kChunkElements / 64 * 68);
}

/// Only chunks with delayed updates switch to the copy that updates write.
TEST(Home, DelayedUpdatesHaveTwoCopiesOfTheWeights) {
  constexpr uint64_t kChunkElements = 65536;
  constexpr uint64_t kElements = 2 * kChunkElements + 640;  // the last chunk is short
  const Layout layout({{.name = "w", .shape = {kElements}}}, {0}, DType::F32, DType::F32,
                      kChunkElements * sizeof(float));
  HomeOptions options;
  options.chunks.resize(3);
  for (const uint32_t c : {0, 2}) options.chunks[c].update = UpdateTime::Delayed;
  Ledger ledger;
  add_home(ledger, layout, kPlanes, options);
  const uint64_t elements = layout.num_space_elements();
  EXPECT_EQ(ledger.bytes("weight", Tier::Host), elements * 4);
  EXPECT_EQ(ledger.bytes("second copy of weights", Tier::Host), 2 * kChunkElements * 4);
  EXPECT_EQ(copied_bytes(layout, kPlanes, options), (elements + 2 * kChunkElements) * 4);
  const auto device = create_device({});
  Home home(*device, layout, kPlanes, options);
  std::byte* const first = home.plane(0, ChunkIndex(2));
  std::byte* const untrained = home.plane(0, ChunkIndex(1));
  std::byte* const scaled = home.plane(1, ChunkIndex(2));
  std::byte* const second = home.next_weights(ChunkIndex(2));
  EXPECT_EQ(second - first, kChunkElements * 4);
  EXPECT_EQ(first - home.plane(0, ChunkIndex(0)), 3 * kChunkElements * 4);
  EXPECT_EQ(second + (elements - 2 * kChunkElements) * 4 - home.plane(0, ChunkIndex(0)),
            copied_bytes(layout, kPlanes, options));
  home.switch_weights();
  EXPECT_EQ(home.plane(0, ChunkIndex(2)), second);
  EXPECT_EQ(home.next_weights(ChunkIndex(2)), first);
  EXPECT_EQ(home.plane(0, ChunkIndex(1)), untrained);
  EXPECT_EQ(home.plane(1, ChunkIndex(2)), scaled);
  EXPECT_THROW(home.next_weights(ChunkIndex(1)), LogicError);
  home.switch_weights();
  EXPECT_EQ(home.plane(0, ChunkIndex(2)), first);
}

}  // namespace
}  // namespace ebb::test

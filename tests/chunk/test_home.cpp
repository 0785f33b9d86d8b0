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

}  // namespace
}  // namespace ebb::test

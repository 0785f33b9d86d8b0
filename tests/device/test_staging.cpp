// The sizes that a plan counts for a GPU beside its own memory: staging buffers, for a limit of
// pinned memory, and what the driver takes.
#include <gtest/gtest.h>

#include "device/driver_memory.h"
#include "device/staging.h"

namespace ebb {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kPage = 4096;

TEST(Staging, NoRingsIfAllMemoryMayBePinned) {
  const size_t buffers[] = {kMiB, 8, 0};
  EXPECT_EQ(planned_staging_bytes(SIZE_MAX, buffers, size_t{1} << 40), 0u);
  const size_t exactly = kMiB + kPage + 16 * kMiB;
  EXPECT_EQ(planned_staging_bytes(exactly, buffers, 16 * kMiB), 0u);
  EXPECT_GT(planned_staging_bytes(exactly, buffers, 16 * kMiB + 1), 0u);
  EXPECT_GT(planned_staging_bytes(exactly - 1, buffers, 16 * kMiB), 0u);
}

TEST(Staging, RingsAreAnEighthOfTheLimitAtMost32MiB) {
  EXPECT_EQ(planned_staging_bytes(64 * kMiB, {}, 65 * kMiB), 8 * kMiB);
  EXPECT_EQ(planned_staging_bytes(256 * kMiB, {}, 257 * kMiB), 32 * kMiB);
  EXPECT_EQ(planned_staging_bytes(1024 * kMiB, {}, 1025 * kMiB), 32 * kMiB);
}

TEST(Staging, RingsAreSmallerIfLittleMemoryIsLeft) {
  const size_t most[] = {60 * kMiB};  // of 64
  EXPECT_EQ(planned_staging_bytes(64 * kMiB, most, 65 * kMiB), 2 * kMiB);
  const size_t nearly_all[] = {63 * kMiB};
  EXPECT_EQ(planned_staging_bytes(64 * kMiB, nearly_all, 65 * kMiB),
            staging_bytes(kSmallestStagingSlotBytes));
  for (size_t slot = 4 * kMiB; slot > kSmallestStagingSlotBytes;) {
    const size_t smaller = smaller_staging_slot(slot);
    EXPECT_LT(smaller, slot);
    EXPECT_EQ(smaller % kPage, 0u);
    slot = smaller;
  }
}

TEST(DriverMemory, GrowsWithPinnedMemory) {
  constexpr size_t kGiB = 1024 * kMiB;
  EXPECT_EQ(driver_host_bytes(0), 704 * kMiB);
  EXPECT_EQ(driver_host_bytes(128 * kGiB), 704 * kMiB + kGiB);
  // A GPU of 24 GiB in machines of 128 and 512 GiB, and one of 141 GB.
  EXPECT_EQ(device_margin_bytes(23 * kGiB, 128 * kGiB), 768 * kMiB);
  EXPECT_EQ(device_margin_bytes(23 * kGiB, 512 * kGiB), 1536 * kMiB);
  EXPECT_EQ(device_margin_bytes(128 * kGiB, 128 * kGiB), 2 * kGiB);
}

}  // namespace
}  // namespace ebb

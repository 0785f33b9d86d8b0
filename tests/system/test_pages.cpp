// touch_pages gives memory to every page of the range and to no other page, also with several
// threads.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "system/pages.h"

namespace ebb::tests_of_pages {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

/// How many pages of the range have memory.
size_t count_pages(std::byte* data, size_t bytes) {
  std::vector<unsigned char> present(bytes / kPageBytes);
  EXPECT_EQ(mincore(data, bytes, present.data()), 0);
  return static_cast<size_t>(
      std::ranges::count_if(present, [](unsigned char page) { return (page & 1) != 0; }));
}

TEST(TouchPages, GivesMemoryToEachPageOfTheRange) {
  for (const size_t bytes : {3 * kPageBytes, 64 * kMiB - kPageBytes, 81 * kMiB + kPageBytes}) {
    const size_t rest = 2 * kMiB - bytes % (2 * kMiB);  // up to the end of a huge page
    std::byte* data = reserve_addresses(bytes + rest + 2 * kMiB);
    commit_memory(data, bytes + rest + 2 * kMiB, "test");
    touch_pages(data, bytes);
    EXPECT_EQ(count_pages(data, bytes), bytes / kPageBytes);
    EXPECT_EQ(count_pages(data + bytes + rest, 2 * kMiB), 0u);
    EXPECT_TRUE(
        std::all_of(data, data + bytes, [](std::byte value) { return value == std::byte{0}; }));
    release_addresses(data, bytes + rest + 2 * kMiB);
  }
}

}  // namespace
}  // namespace ebb::tests_of_pages

// copy_bytes copies each byte of its range and writes no other byte, on each instruction set.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>
#include <vector>

#include "system/copy.h"

namespace ebb::tests_of_copy {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

void copy_every_size_and_alignment() {
  for (size_t bytes :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, kMiB - 1, kMiB, kMiB + 1, 2 * kMiB + 77}) {
    for (size_t offset : {size_t{0}, size_t{1}, size_t{17}, size_t{64}}) {
      std::vector<uint8_t> from(bytes + 200), to(bytes + 200, 0xee), expected(bytes + 200, 0xee);
      for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 31 + i / 251);
      for (size_t i = 0; i < bytes; ++i) expected[offset + i] = from[3 + i];
      copy_bytes(to.data() + offset, from.data() + 3, bytes);
      ASSERT_TRUE(to == expected) << bytes << " bytes at offset " << offset;
    }
  }
}

TEST(CopyBytes, EverySizeAndAlignment) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
    copy_every_size_and_alignment();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

}  // namespace
}  // namespace ebb::tests_of_copy

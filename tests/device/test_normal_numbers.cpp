// The numbers in vectors have the bits of normal_pair(), on each instruction set. The rounding of
// some of them is not sure, for example of one of counter 11381; so the test fails if the C library
// does not compute these.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "device/normal_numbers.h"
#include "device/random.h"

namespace ebb {
namespace {

constexpr uint64_t kHigh = 0x123456789abcdef0, kKey = 0xfedcba9876543210;

std::vector<float> pairs(uint64_t first, size_t count) {
  std::vector<float> numbers(count);
  for (size_t i = 0; i < count; i += 4) {
    const auto words = philox4x32(first + i / 4, kHigh, kKey);
    const auto a = normal_pair(words[0], words[1]), b = normal_pair(words[2], words[3]);
    const std::array<float, 4> values = {a.first, a.second, b.first, b.second};
    std::copy_n(values.begin(), std::min<size_t>(4, count - i), numbers.data() + i);
  }
  return numbers;
}

class NormalNumbers : public testing::Test {
 protected:
  ~NormalNumbers() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
};

TEST_F(NormalNumbers, HaveTheBitsOfPairs) {
  // The lower half of the counter overflows.
  for (const uint64_t first : {uint64_t{0}, (uint64_t{7} << 32) - 1000}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{30}, size_t{33}, size_t{1} << 19}) {
      const std::vector<float> expected = pairs(first, count);
      for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
        SCOPED_TRACE(hwy::TargetName(target));
        hwy::SetSupportedTargetsForTest(target);
        hwy::GetChosenTarget().DeInit();
        std::vector<float> numbers(count, -1);
        normal_numbers(first, kHigh, kKey, numbers);
        EXPECT_TRUE(std::ranges::equal(numbers, expected, {}, std::bit_cast<uint32_t, float>,
                                       std::bit_cast<uint32_t, float>))
            << count << " numbers from counter " << first;
      }
    }
  }
}

}  // namespace
}  // namespace ebb

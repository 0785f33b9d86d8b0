#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "cpu_adam/gradient_norm.h"
#include "device/errors.h"

namespace ebb::test {
namespace {

// 1 + 2^-53 is 1, so the order of the terms decides the sum.
TEST(SumInOrder, AddsFromFirstToLast) {
  const double tiny = 0x1p-53;
  EXPECT_EQ(sum_in_order(std::array{1.0, tiny, tiny}), 1.0);
  EXPECT_EQ(sum_in_order(std::array{tiny, tiny, 1.0}), 1.0 + 0x1p-52);
  EXPECT_EQ(sum_in_order({}), 0.0);
  EXPECT_EQ(norm_in_order(std::array{9.0, 16.0}), 5.0);
}

TEST(SumInOrder, KeepsNanAndInfinity) {
  EXPECT_TRUE(std::isnan(sum_in_order(std::array{1.0, std::nan(""), 2.0})));
  EXPECT_TRUE(std::isinf(norm_in_order(std::array{1.0, HUGE_VAL})));
}

// Values of the formula of torch.nn.utils.clip_grad_norm_, computed by hand in fp64.
TEST(ClipScale, EqualsThatOfPyTorch) {
  EXPECT_EQ(clip_scale(2.0, 1.0), static_cast<float>(1.0 / 2.000001));
  EXPECT_EQ(clip_scale(1.0, 1.0),
            static_cast<float>(1.0 / 1.000001));  // PyTorch adds 1e-6 to the norm
  EXPECT_EQ(clip_scale(0.5, 1.0), 1.0f);
  EXPECT_EQ(clip_scale(0.0, 1.0), 1.0f);
  EXPECT_EQ(clip_scale(1e30, 1.0), 1e-30f);
}

TEST(ClipScale, ALimitOfZeroDisablesClipping) {
  EXPECT_EQ(clip_scale(1e30, 0.0), 1.0f);
  EXPECT_EQ(clip_scale(std::nan(""), 0.0), 1.0f);
}

TEST(ClipScale, RejectsNormsThatAreNotFinite) {
  EXPECT_THROW(clip_scale(std::nan(""), 1.0), LogicError);
  EXPECT_THROW(clip_scale(HUGE_VAL, 1.0), LogicError);
  EXPECT_THROW(clip_scale(1.0, -1.0), LogicError);
}

}  // namespace
}  // namespace ebb::test

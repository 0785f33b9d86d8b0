#include <gtest/gtest.h>

#include "device/arithmetic.h"
#include "device/device.h"
#include "device/errors.h"

namespace ebb::test {
namespace {

Processor processor(const char* vendor, int family, bool has_bf16_dot) {
  return {.vendor = vendor, .family = family, .model = 1, .has_bf16_dot = has_bf16_dot};
}

TEST(Arithmetic, TheDotProductIsPreferredOnProcessorsWhereItIsFaster) {
  EXPECT_EQ(preferred_arithmetic(processor("AuthenticAMD", 26, true)), Arithmetic::Bf16Dot);
  EXPECT_EQ(preferred_arithmetic(processor("AuthenticAMD", 25, true)), Arithmetic::Bf16Dot);
  EXPECT_EQ(preferred_arithmetic(processor("AuthenticAMD", 26, false)), Arithmetic::Fp32);
  EXPECT_EQ(preferred_arithmetic(processor("AuthenticAMD", 27, true)), Arithmetic::Fp32);
  EXPECT_EQ(preferred_arithmetic(processor("GenuineIntel", 6, true)), Arithmetic::Fp32);
  EXPECT_EQ(preferred_arithmetic(processor("GenuineIntel", 26, true)), Arithmetic::Fp32);
}

TEST(Arithmetic, ArithmeticThatTheProcessorLacksIsRejected) {
  EXPECT_EQ(choose_arithmetic({}, processor("AuthenticAMD", 26, true)), Arithmetic::Bf16Dot);
  EXPECT_EQ(choose_arithmetic(Arithmetic::Fp32, processor("AuthenticAMD", 26, true)),
            Arithmetic::Fp32);
  EXPECT_EQ(choose_arithmetic(Arithmetic::Bf16Dot, processor("GenuineIntel", 6, true)),
            Arithmetic::Bf16Dot);
  EXPECT_THROW(choose_arithmetic(Arithmetic::Bf16Dot, processor("GenuineIntel", 6, false)),
               ConfigError);
}

TEST(Arithmetic, AHostDeviceReportsItsArithmetic) {
  const Processor here = this_processor();
  EXPECT_FALSE(here.vendor.empty());
  EXPECT_GT(here.family, 0);
  EXPECT_EQ(create_device()->info().arithmetic, preferred_arithmetic(here));
  EXPECT_EQ(create_device({.arithmetic = Arithmetic::Fp32})->info().arithmetic, Arithmetic::Fp32);
}

}  // namespace
}  // namespace ebb::test

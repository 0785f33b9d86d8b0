// fp16: the scalar type compared with fp64, and the vector functions compared with the scalar type
// on each instruction set, with denormals flushed and not flushed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "device/dtype.h"
#include "system/thread_team.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/device/test_f16.cpp"
// The order matters: foreach_target.h compiles the code after it once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "device/f16-inl.h"
#include "system/denormals.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

// REQUIRES: n is a multiple of 16.
void widen(const F16* from, float* to, size_t n) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) hn::StoreU(load_f16(d, from + i), d, to + i);
}

void narrow(const float* from, F16* to, size_t n) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) store_f16(d, hn::LoadU(d, from + i), to + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {
namespace {

HWY_EXPORT(widen);
HWY_EXPORT(narrow);

constexpr uint32_t kAll = 65536;

/// The value of these bits by the definition of the format.
double value_of(uint32_t bits) {
  const double sign = bits & 0x8000u ? -1 : 1;
  const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 1023);
  if (exponent == 31) {
    return sign * (fraction ? std::numeric_limits<double>::quiet_NaN()
                            : std::numeric_limits<double>::infinity());
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }

/// Each fp16 value, the middle between it and the next, and the floats next to both; also each fp32
/// exponent with several fractions. The size is a multiple of 16.
std::vector<float> floats_to_narrow() {
  std::vector<float> floats;
  const auto add_around = [&](uint32_t bits) {
    for (uint32_t b : {bits - 1, bits, bits + 1}) {
      floats.push_back(std::bit_cast<float>(b));
      floats.push_back(std::bit_cast<float>(b ^ 0x80000000u));
    }
  };
  for (uint32_t h = 0; h < 0x7c00; ++h) {
    const auto low = static_cast<float>(value_of(h));
    const double next = h == 0x7bff ? 65536 : value_of(h + 1);
    add_around(bits_of(low));
    add_around(bits_of(static_cast<float>((low + next) / 2)));
  }
  for (uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (uint32_t fraction : {0u, 1u, 0x1000u, 0x1fffu, 0x2000u, 0x3fffffu, 0x400000u, 0x7ffffeu}) {
      add_around(exponent << 23 | fraction);
    }
  }
  floats.resize(floats.size() / 16 * 16);
  return floats;
}

TEST(F16, WidensExactly) {
  for (uint32_t h = 0; h < kAll; ++h) {
    const float value = F16::from_bits(static_cast<uint16_t>(h));
    if (std::isnan(value_of(h))) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(bits_of(value) & 0x400000u) << "the NaN is not quiet";
    } else {
      EXPECT_EQ(value, value_of(h));
    }
    EXPECT_EQ(std::signbit(value), h >= 0x8000);
  }
}

TEST(F16, NarrowsToNearestTiesToEven) {
  for (float value : floats_to_narrow()) {
    const F16 narrow(value);
    EXPECT_EQ(std::signbit(static_cast<float>(narrow)), std::signbit(value));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(narrow)));
      continue;
    }
    const auto magnitude = std::min(std::abs(double{value}), 65536.0);
    const uint32_t bits = narrow.bits & 0x7fffu;
    const auto distance = [&](uint32_t b) {
      return std::abs((b == 0x7c00 ? 65536 : value_of(b)) - magnitude);
    };
    ASSERT_LE(bits, 0x7c00u);
    for (uint32_t other : {bits - 1, bits + 1}) {
      if (other > 0x7c00) continue;
      ASSERT_LE(distance(bits), distance(other)) << value;
      if (distance(bits) == distance(other)) {
        ASSERT_EQ(bits % 2, 0u) << value;
      }
    }
  }
}

TEST(F16, NarrowingUndoesWidening) {
  for (uint32_t h = 0; h < kAll; ++h) {
    const F16 half = F16::from_bits(static_cast<uint16_t>(h));
    const bool nan = std::isnan(value_of(h));
    EXPECT_EQ(F16(static_cast<float>(half)).bits, nan ? h | 0x200u : h);
  }
}

class F16Vectors : public testing::TestWithParam<bool> {
 protected:
  /// Runs `body` once for each instruction set that is compiled and that this CPU has.
  template <class Body>
  void on_every_target(const Body& body) {
    for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().DeInit();
      SCOPED_TRACE(hwy::TargetName(target));
      body();
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
  const std::optional<FlushDenormals> flush_ =
      GetParam() ? std::optional<FlushDenormals>(std::in_place) : std::nullopt;
};
INSTANTIATE_TEST_SUITE_P(Denormals, F16Vectors, testing::Bool(),
                         [](const auto& info) { return info.param ? "flushed" : "kept"; });

TEST_P(F16Vectors, WidenAllValuesLikeTheScalarType) {
  std::vector<F16> halves(kAll);
  for (uint32_t h = 0; h < kAll; ++h) halves[h] = F16::from_bits(static_cast<uint16_t>(h));
  on_every_target([&] {
    std::vector<float> wide(kAll);
    HWY_DYNAMIC_DISPATCH(widen)(halves.data(), wide.data(), kAll);
    size_t num_wrong = 0;
    for (uint32_t h = 0; h < kAll; ++h) num_wrong += bits_of(wide[h]) != bits_of(halves[h]);
    EXPECT_EQ(num_wrong, 0u);
  });
}

TEST_P(F16Vectors, NarrowLikeTheScalarType) {
  const std::vector<float> floats = floats_to_narrow();
  on_every_target([&] {
    std::vector<F16> halves(floats.size());
    HWY_DYNAMIC_DISPATCH(narrow)(floats.data(), halves.data(), floats.size());
    size_t num_wrong = 0;
    for (size_t i = 0; i < floats.size(); ++i) num_wrong += halves[i].bits != F16(floats[i]).bits;
    EXPECT_EQ(num_wrong, 0u);
  });
}

// A common conversion scales a denormal fp32. It would lose subnormals when denormals are flushed.
TEST(F16, WidenByScalingWouldLoseSubnormals) {
  const FlushDenormals flush;
  const volatile float scale = 0x1p112f;
  const volatile float shifted = std::bit_cast<float>(uint32_t{1} << 13);
  EXPECT_EQ(shifted * scale, 0);
  EXPECT_EQ(static_cast<float>(F16::from_bits(1)), 0x1p-24f);
}

}  // namespace
}  // namespace ebb
#endif

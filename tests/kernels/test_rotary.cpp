#include <cmath>

#include "tests/kernels/reference.h"

namespace ebb::test::tests_of_rotary {
namespace {

struct Case {
  int64_t rows, columns, heads, width;
};
const Case kCases[] = {{1, 2, 1, 2}, {7, 35, 3, 10}, {33, 100, 2, 34}, {20, 256, 4, 64}};

class RotaryTest : public testing::TestWithParam<std::tuple<DType, Case>> {};
INSTANTIATE_TEST_SUITE_P(Sizes, RotaryTest,
                         testing::Combine(testing::Values(DType::F32, DType::BF16, DType::F16),
                                          testing::ValuesIn(kCases)),
                         ([](const auto& info) {
                           const auto& [dtype, c] = info.param;
                           return std::string(name_of(dtype)) + "_" + std::to_string(c.rows) + "_" +
                                  std::to_string(c.width);
                         }));

std::vector<double> frequencies_of(int64_t half) {
  std::vector<double> r;
  for (int64_t i = 0; i < half; ++i) {
    r.push_back(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half)));
  }
  return r;
}

struct Rotation {
  Array positions, table;
  Values angles;
  double factor = 1.25;

  Rotation(Harness& h, const Case& c, int64_t limit)
      : positions(int_array(random_indices(c.rows, limit, 10))),
        table(DType::F32, {c.rows, c.width}) {
    const std::vector<double> frequencies = frequencies_of(c.width / 2);
    angles = product(positions.values(), frequencies, c.rows, 1, c.width / 2);
    h.kernels->submit(h.stream, RotaryTable{table, positions, frequencies, factor});
  }
};

TEST_P(RotaryTest, TheTableIsComputedInFp64AndRoundedOnce) {
  const auto& [dtype, c] = GetParam();
  Harness h;
  const Rotation t(h, c, 2'000'000);
  const Values want = rotary_table(t.angles, c.rows, c.width / 2, t.factor);
  EXPECT_TRUE(close(t.table.values(), want, Values(want.size(), 1), 1e-15, DType::F32));
}

TEST_P(RotaryTest, RotatesPairsAndKeepsOtherColumns) {
  const auto& [dtype, c] = GetParam();
  Harness h;
  const Rotation t(h, c, 3000);
  const Array x = random_array(dtype, {c.rows, c.columns}, 1);
  const Values before = x.values();
  h.kernels->submit(h.stream, ApplyRotary{x, t.table, c.heads, RotaryDirection::Forward});
  const Values want = rotate(before, t.angles, c.rows, c.columns, c.heads, c.width, t.factor);
  EXPECT_TRUE(close(x.values(), want, Values(want.size(), 2), 2e-7, dtype));
  const Values backwards =
      rotate(before, negative(t.angles), c.rows, c.columns, c.heads, c.width, t.factor);
  const Array back(dtype, {c.rows, c.columns}, before);
  h.kernels->submit(h.stream, ApplyRotary{back, t.table, c.heads, RotaryDirection::Backward});
  EXPECT_TRUE(close(back.values(), backwards, Values(want.size(), 2), 2e-7, dtype));
  EXPECT_FALSE(close(x.values(), backwards, Values(want.size(), 2), 2e-7, dtype));
}

TEST(RotaryTest, BackwardIsTheDerivativeOfForward) {
  const Case c{6, 40, 2, 18};
  Harness h;
  const Rotation t(h, c, 100);
  const Values x = random_values(6 * 40, 1), dy = random_values(6 * 40, 2);
  const auto forward = [&](const Values& v) {
    const Array a(DType::F32, {6, 40}, v);
    h.kernels->submit(h.stream, ApplyRotary{a, t.table, c.heads, RotaryDirection::Forward});
    return a.values();
  };
  const Array dx(DType::F32, {6, 40}, dy);
  h.kernels->submit(h.stream, ApplyRotary{dx, t.table, c.heads, RotaryDirection::Backward});
  EXPECT_TRUE(differentiates(forward, dy, x, dx.values(), 1e-2, 1e-4));
  EXPECT_FALSE(differentiates(forward, dy, x, forward(dy), 1e-2, 1e-4));
}

}  // namespace
}  // namespace ebb::test::tests_of_rotary

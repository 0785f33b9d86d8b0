// Kernels of a GPU with padding: columns after the last class or output channel. The padding is
// NaN. No result depends on it, and no kernel writes it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "tests/kernels/harness.h"

namespace ebb::test {
namespace {

constexpr int64_t kRows = 33, kChannels = 40;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

int64_t padded(int64_t columns) { return (columns + 63) / 64 * 64; }

/// Columns [first, first + count) of an array, with `padding` columns of NaN after them.
Array columns_of(const Array& array, int64_t first, int64_t count, int64_t padding = 0) {
  const Values values = array.values();
  const int64_t columns = array.tensor().columns(), width = count + padding;
  Values part(static_cast<size_t>(kRows * width), kNan);
  for (int64_t row = 0; row < kRows; ++row) {
    std::copy_n(values.begin() + row * columns + first, count, part.begin() + row * width);
  }
  return Array(array.tensor().dtype, {kRows, width}, part);
}

Array with_padding(const Array& array) {
  const int64_t columns = array.tensor().columns();
  return columns_of(array, 0, columns, padded(columns) - columns);
}

/// The first `count` columns. The others are padding, which must still be NaN.
Values without_padding(const Array& array, int64_t count) {
  const int64_t columns = array.tensor().columns();
  for (const double value : columns_of(array, count, columns - count).values()) {
    EXPECT_TRUE(std::isnan(value)) << "a kernel has written the padding";
  }
  return columns_of(array, 0, count).values();
}

/// Both were computed in fp32 from the same values, perhaps in another order.
void expect_same(const Values& got, const Values& want, double relative, double absolute,
                 const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], relative * std::abs(want[i]) + absolute) << what << ' ' << i;
  }
}

/// Results that are rounded once to the type.
void expect_rounded(const Values& got, const Values& want, DType dtype, const char* what) {
  const double unit = dtype == DType::F32 ? 1e-5 : dtype == DType::F16 ? 0x1p-11 : 0x1p-8;
  expect_same(got, want, 2 * unit, 1e-6, what);
}

/// Products. They may have been rounded to the type before a bias or an old value of about 1 was
/// added (device/kernels/linear.h): two units of the last place, and half a unit of 1. `terms`: the
/// largest sum of the terms' magnitudes. Terms may cancel, and their sum in fp32 in another order
/// differs by some units of the last place of their magnitudes.
void expect_product(const Values& got, const Values& want, DType dtype, const char* what,
                    double terms) {
  const double unit = dtype == DType::F32 ? 1e-5 : dtype == DType::F16 ? 0x1p-11 : 0x1p-8;
  expect_same(got, want, 4 * unit, unit + 0x1p-22 * terms, what);
}

/// The magnitudes of a matrix: element (i, j) is values[i * row + j * column].
struct Factor {
  Values values;
  int64_t row, column;
  double operator()(int64_t i, int64_t j) const {
    return std::abs(values[static_cast<size_t>(i * row + j * column)]);
  }
};
/// The largest sum over j of a(i, j) b(j, k).
double largest_terms(const Factor& a, const Factor& b, int64_t rows, int64_t sums,
                     int64_t columns) {
  double largest = 0;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < columns; ++k) {
      double terms = 0;
      for (int64_t j = 0; j < sums; ++j) terms += a(i, j) * b(j, k);
      largest = std::max(largest, terms);
    }
  }
  return largest;
}

/// Type, number of classes. Large products are computed in two parts.
class Padding : public testing::TestWithParam<std::tuple<DType, int64_t>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  int64_t classes() const { return std::get<1>(GetParam()); }
  /// Every 7th target is ignored.
  Array targets() const {
    auto indices = random_indices(kRows, classes(), 5);
    for (size_t row = 3; row < indices.size(); row += 7) indices[row] = -100;
    indices[4] = classes() - 1;
    return int_array(indices);
  }

  Harness h;
};

INSTANTIATE_TEST_SUITE_P(Types, Padding,
                         testing::Combine(testing::Values(DType::F32, DType::BF16, DType::F16),
                                          testing::Values(57, 1027)),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_P(Padding, OfLinearLayers) {
  const Array x = random_array(dtype(), {kRows, kChannels}, 1);
  const Array w = random_array(dtype(), {classes(), kChannels}, 2);
  const Array bias = random_array(dtype(), {classes()}, 3);
  const Array y(dtype(), {kRows, classes()}), wide_y = with_padding(y);
  h.kernels->submit(h.stream, LinearForward{y, x, w, bias});
  h.kernels->submit(h.stream, LinearForward{wide_y, x, w, bias});
  const int64_t n = classes(), c = kChannels;
  const double y_terms = largest_terms({x.values(), c, 1}, {w.values(), 1, c}, kRows, c, n);
  expect_product(without_padding(wide_y, n), y.values(), dtype(), "y", y_terms);

  // The two may have been rounded differently, and what follows is about equal inputs.
  const Array same_y = with_padding(y);
  const double dx_terms = largest_terms({y.values(), n, 1}, {w.values(), c, 1}, kRows, n, c);
  for (const DType type : {dtype(), DType::F32}) {
    const Array dx(type, {kRows, kChannels}), same_dx(type, {kRows, kChannels});
    for (const Write write : {Write::Store, Write::Add}) {
      h.kernels->submit(h.stream, LinearBackwardInput{dx, y, w, write});
      h.kernels->submit(h.stream, LinearBackwardInput{same_dx, same_y, w, write});
      expect_product(same_dx.values(), dx.values(), type, "dx", 2 * dx_terms);
    }
  }

  const Array dw(DType::F32, {classes(), kChannels}), same_dw(DType::F32, {classes(), kChannels});
  const Array db(DType::F32, {classes()}), same_db(DType::F32, {classes()});
  for (const Write write : {Write::Store, Write::Add}) {
    h.kernels->submit(h.stream, LinearBackwardWeight{dw, db, y, x, write});
    h.kernels->submit(h.stream, LinearBackwardWeight{same_dw, same_db, same_y, x, write});
  }
  const double dw_terms = largest_terms({y.values(), 1, n}, {x.values(), c, 1}, n, kRows, c);
  const double db_terms =
      largest_terms({y.values(), 1, n}, {Values(kRows, 1.0), 1, 0}, n, kRows, 1);
  expect_product(same_dw.values(), dw.values(), DType::F32, "dw", 2 * dw_terms);
  expect_product(same_db.values(), db.values(), DType::F32, "db", 2 * db_terms);
}

TEST_P(Padding, OfLogits) {
  const Array logits = random_array(dtype(), {kRows, classes()}, 4, 5.0);
  const Array wide = with_padding(logits);
  const Array losses(DType::F32, {kRows}), same_losses(DType::F32, {kRows});
  h.kernels->submit(h.stream, CrossEntropy{losses, logits, targets(), 0.5f});
  h.kernels->submit(h.stream, CrossEntropy{same_losses, wide, targets(), 0.5f, classes()});
  expect_rounded(same_losses.values(), losses.values(), DType::F32, "losses");
  expect_rounded(without_padding(wide, classes()), logits.values(), dtype(), "gradient");
}

/// The last slice has padding. There is no other slice, or one without padding, because the number
/// of its classes is a multiple of 16.
TEST_P(Padding, OfTheLastSliceOfLogits) {
  struct Part {
    ClassSlice slice;
    Array logits;
    Values gradient() const { return without_padding(logits, slice.count); }
  };
  const Array all = random_array(dtype(), {kRows, classes()}, 4, 5.0),
              gradient = columns_of(all, 0, classes());
  const Array losses(DType::F32, {kRows});
  h.kernels->submit(h.stream, CrossEntropy{losses, gradient, targets(), 0.5f});
  for (const int64_t first : {int64_t{0}, classes() / 2 / 16 * 16}) {
    const int64_t rest = classes() - first;
    std::vector<Part> parts;
    if (first > 0) parts.push_back({{0, first, classes()}, columns_of(all, 0, first)});
    parts.push_back({{first, rest, classes()}, with_padding(columns_of(all, first, rest))});
    const Array statistics(DType::F32, {kRows, 3}), same_losses(DType::F32, {kRows});
    for (const Part& part : parts) {
      h.kernels->submit(h.stream, CrossEntropyStatistics{same_losses, statistics, part.logits,
                                                         targets(), part.slice});
    }
    expect_rounded(same_losses.values(), losses.values(), DType::F32, "losses");
    for (const Part& part : parts) {
      h.kernels->submit(h.stream,
                        CrossEntropyGradient{part.logits, statistics, targets(), part.slice, 0.5f});
      expect_rounded(part.gradient(),
                     columns_of(gradient, part.slice.first, part.slice.count).values(), dtype(),
                     "gradient of a slice");
    }
  }
}

}  // namespace
}  // namespace ebb::test

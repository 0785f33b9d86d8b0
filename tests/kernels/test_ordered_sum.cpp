// round_sums_in_order() of cpu_adam/ gives the bits that this device gives if it adds the same
// gradient sums with Accumulate and RoundGradient.
#include <cmath>
#include <limits>

#include "cpu_adam/ordered_sum.h"
#include "system/thread_team.h"
#include "tests/kernels/harness.h"

namespace ebb::test {
namespace {

constexpr int kMostUses = 3;
constexpr int kMostGroups = 8;

int64_t num_pieces(int64_t n) { return (n + kPieceElements - 1) / kPieceElements; }

/// Numbers of both signs over ten decades, and zeros, denormals and infinities among them. All
/// infinities of an element have one sign, so no sum is a NaN.
Values sums_of(int64_t n, uint64_t seed) {
  Values values = random_values(n, seed);
  const Values exponents = random_values(n, seed + 1000, 5);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] *= std::pow(10, exponents[i]);
    if (i % 13 == 3) values[i] = -0.0;
    if (i % 17 == 5) values[i] = std::copysign(1e-40, values[i]);
    if (i % 19 == 7) values[i] = std::copysign(3e-38, values[i]);  // a difference is a denormal
    if (i % 4001 == 1000 && seed % 3 == 0) values[i] = i % 2 ? INFINITY : -INFINITY;
  }
  return values;
}

struct Finished {
  explicit Finished(DType type, int64_t n)
      : gradient(type, {n}), partials(DType::F64, {num_pieces(n)}) {}
  Array gradient, partials;
};

/// The sums of each group for each use.
using Sums = std::vector<std::vector<Array>>;

Sums make_sums(int num_uses, int num_groups, int64_t n, DType type = DType::F32) {
  Sums sums(static_cast<size_t>(num_uses));
  uint64_t seed = 1;
  for (auto& groups : sums) {
    for (int g = 0; g < num_groups; ++g) {
      groups.emplace_back(type, Shape{n}, sums_of(n, seed++));
    }
  }
  return sums;
}

void finish_on_host(const Sums& sums, int num_threads, const Finished& to) {
  std::vector<std::vector<const std::byte*>> groups;
  for (const auto& of_use : sums) {
    groups.emplace_back();
    for (const Array& array : of_use) groups.back().push_back(array.tensor().data);
  }
  ThreadTeam team(num_threads);
  const std::vector<GroupSums> uses(groups.begin(), groups.end());
  const Tensor& gradient = to.gradient.tensor();
  round_sums_in_order(team, uses, sums[0][0].tensor().dtype, gradient.num_elements(), gradient.data,
                      gradient.dtype,
                      {to.partials.tensor().as<double>(),
                       static_cast<size_t>(to.partials.tensor().num_elements())});
}

/// The first contribution to a gradient sum is stored, the others are added. The optimizer adds the
/// sums of more than two uses before it rounds.
void finish_on_device(Harness& h, const Sums& sums, const Finished& to) {
  std::vector<Tensor> of_use;
  for (const auto& groups : sums) {
    for (size_t g = 1; g < groups.size(); ++g) {
      h.kernels->submit(h.stream, Accumulate{groups[0], groups[g]});
    }
    of_use.push_back(groups[0]);
  }
  const bool adds_second = of_use.size() == 2;
  for (size_t use = 1; use < of_use.size() && !adds_second; ++use) {
    h.kernels->submit(h.stream, Accumulate{of_use[0], of_use[use]});
  }
  h.kernels->submit(h.stream, RoundGradient{to.gradient, of_use[0],
                                            adds_second ? of_use[1] : Tensor{}, to.partials});
}

class OrderedSum : public testing::TestWithParam<std::tuple<DType, int64_t>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  int64_t n() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Sizes, OrderedSum,
                         testing::Combine(testing::Values(DType::F32, DType::BF16, DType::F16),
                                          testing::Values(1, 63, 65, 4099, 65536, 65613)),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_P(OrderedSum, HasTheBitsOfTheDevice) {
  Harness h;
  for (int num_uses = 1; num_uses <= kMostUses; ++num_uses) {
    for (int num_groups : {1, 2, 3, kMostGroups}) {
      SCOPED_TRACE(std::to_string(num_uses) + " uses, " + std::to_string(num_groups) + " groups");
      const Sums sums = make_sums(num_uses, num_groups, n());
      const Finished on_host(dtype(), n()), on_device(dtype(), n());
      finish_on_host(sums, num_groups % 3 + 1, on_host);
      finish_on_device(h, sums, on_device);  // changes the sums
      EXPECT_TRUE(on_host.gradient.raw() == on_device.gradient.raw());
      EXPECT_EQ(on_host.partials.raw(), on_device.partials.raw());
    }
  }
}

/// The device widens the first sum, and adds the others to it.
TEST_P(OrderedSum, HasTheBitsOfTheDeviceForSumsInBf16) {
  Harness h;
  for (int num_uses = 1; num_uses <= kMostUses; ++num_uses) {
    const Sums rounded = make_sums(num_uses, 3, n(), DType::BF16);
    Sums of_uses;
    for (const auto& groups : rounded) {
      const Array& sum = of_uses.emplace_back().emplace_back(DType::F32, Shape{n()});
      h.kernels->submit(h.stream, Accumulate{sum, groups[0], Write::Store});
      for (size_t g = 1; g < groups.size(); ++g) {
        h.kernels->submit(h.stream, Accumulate{sum, groups[g]});
      }
    }
    const Finished on_host(dtype(), n()), on_device(dtype(), n());
    finish_on_host(rounded, 2, on_host);
    finish_on_device(h, of_uses, on_device);
    EXPECT_TRUE(on_host.gradient.raw() == on_device.gradient.raw()) << num_uses << " uses";
    EXPECT_EQ(on_host.partials.raw(), on_device.partials.raw());
  }
}

TEST_P(OrderedSum, HasTheBitsOfTheDeviceForMisalignedArrays) {
  Harness h;
  const MisalignedArrays misaligned;
  const Sums sums = make_sums(2, 3, n());
  const Finished on_host(dtype(), n()), on_device(dtype(), n());
  finish_on_host(sums, 2, on_host);
  finish_on_device(h, sums, on_device);
  EXPECT_TRUE(on_host.gradient.raw() == on_device.gradient.raw());
  EXPECT_EQ(on_host.partials.raw(), on_device.partials.raw());
}

TEST_P(OrderedSum, PartialNormsHaveTheBitsOfTheDevice) {
  Harness h;
  const Array gradient(dtype(), {n()}, sums_of(n(), 1));
  const Array on_host(DType::F64, {num_pieces(n())}), on_device(DType::F64, {num_pieces(n())});
  ThreadTeam team(2);
  partial_norms(team, gradient.tensor().data, dtype(), n(),
                {on_host.tensor().as<double>(), static_cast<size_t>(num_pieces(n()))});
  h.kernels->submit(h.stream, SquaredNormPieces{on_device, gradient});
  EXPECT_EQ(on_host.raw(), on_device.raw());
}

/// Both results are NaNs, or neither. The payload of a NaN depends on the kind of device.
TEST(OrderedSum, HasNansWhereTheDeviceHasThem) {
  Harness h;
  constexpr int64_t n = 1009;
  for (DType type : {DType::F32, DType::BF16, DType::F16}) {
    const Sums sums = make_sums(2, 3, n);
    float* const last = sums[1][2].tensor().as<float>();
    sums[0][0].tensor().as<float>()[500] = std::numeric_limits<float>::quiet_NaN();
    last[501] = std::numeric_limits<float>::quiet_NaN();
    sums[0][1].tensor().as<float>()[502] = INFINITY;
    last[502] = -INFINITY;
    const Finished on_host(type, n), on_device(type, n);
    finish_on_host(sums, 1, on_host);
    finish_on_device(h, sums, on_device);
    const Values host = on_host.gradient.values(), device = on_device.gradient.values();
    for (size_t i = 0; i < host.size(); ++i) {
      EXPECT_EQ(std::isnan(host[i]), i >= 500 && i <= 502);
      EXPECT_TRUE(std::isnan(host[i]) ? std::isnan(device[i]) : host[i] == device[i]);
    }
    EXPECT_TRUE(std::isnan(on_host.partials.values()[0]));
    EXPECT_TRUE(std::isnan(on_device.partials.values()[0]));
  }
}

}  // namespace
}  // namespace ebb::test

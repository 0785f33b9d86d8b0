// The backward through an activation and the linear layer after it. A fused kernel and two kernels
// agree, except that two round the value between them.
#include <algorithm>
#include <cmath>

#include "tests/kernels/reference.h"

namespace ebb::test::tests_of_linear_activation {
namespace {

constexpr double kRelative = 1e-6;  // of the sum of the absolute terms

struct Kind {
  const char* name;
  Activation activation;
};
const Kind kKinds[] = {
    {"gelu_tanh", Activation::GeluTanh}, {"gelu", Activation::Gelu}, {"relu", Activation::Relu}};

struct Size {
  int64_t n, c, oc;
};
// Inner sizes that are multiples of a vector of eight, and that are not.
const Size kSizes[] = {{1, 1, 1}, {9, 17, 49}, {7, 40, 64}, {33, 64, 96}, {130, 333, 200}};

using Case = std::tuple<DType, Kind, Size>;

class LinearActivation : public testing::TestWithParam<Case> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  Kind kind() const { return std::get<1>(GetParam()); }
  Size size() const { return std::get<2>(GetParam()); }

  /// The largest relative error if the value between two kernels is rounded to the type.
  double rounding() const {
    return dtype() == DType::F32 ? 0 : dtype() == DType::BF16 ? 0x1p-8 : 0x1p-11;
  }
};

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  const auto& [dtype, kind, size] = info.param;
  return std::string(name_of(dtype)) + "_" + kind.name + "_" + std::to_string(size.n) + "_" +
         std::to_string(size.c) + "_" + std::to_string(size.oc);
}

INSTANTIATE_TEST_SUITE_P(Sizes, LinearActivation,
                         testing::Combine(testing::Values(DType::F32, DType::BF16, DType::F16),
                                          testing::ValuesIn(kKinds), testing::ValuesIn(kSizes)),
                         name_of_case);

/// `slack` has an entry for each element.
testing::AssertionResult within(const Values& got, const Values& want, const Values& slack,
                                DType dtype) {
  return close(got, want, slack, 1, dtype);
}

TEST_P(LinearActivation, Backward) {
  const auto [n, oc, c] = size();  // c: the size of the activation
  Harness h;
  const Array dy = random_array(dtype(), {n, oc}, 1), w = random_array(dtype(), {oc, c}, 2);
  const Array before = random_array(dtype(), {n, c}, 3, 4.0), dbefore(dtype(), {n, c});
  h.kernels->submit(h.stream, ActivationLinearBackward{dbefore, dy, w, before, kind().activation});
  const Values want = multiply(product(dy.values(), w.values(), n, oc, c),
                               activation_slope(kind().activation, before.values()));
  Values slack = product(absolute(dy.values()), absolute(w.values()), n, oc, c);
  for (size_t i = 0; i < want.size(); ++i) {
    slack[i] = 2 * kRelative * slack[i] + rounding() * std::abs(want[i]);
  }
  EXPECT_TRUE(within(dbefore.values(), want, slack, dtype()));
}

TEST(LinearActivations, TheComparisonFindsAnotherActivation) {
  constexpr int64_t n = 33, c = 64, oc = 96;
  Harness h;
  const Array dy = random_array(DType::F32, {n, oc}, 1), w = random_array(DType::F32, {oc, c}, 2);
  const Array before = random_array(DType::F32, {n, c}, 3, 4.0), dbefore(DType::F32, {n, c});
  const Values sums = product(dy.values(), w.values(), n, oc, c);
  Values slack = product(absolute(dy.values()), absolute(w.values()), n, oc, c);
  for (double& element : slack) element *= 2 * kRelative;
  for (const Kind& kind : kKinds) {
    h.kernels->submit(h.stream, ActivationLinearBackward{dbefore, dy, w, before, kind.activation});
    for (const Kind& other : kKinds) {
      const Values want = multiply(sums, activation_slope(other.activation, before.values()));
      EXPECT_EQ(within(dbefore.values(), want, slack, DType::F32), &kind == &other)
          << kind.name << " as " << other.name;
    }
  }
}

TEST(LinearActivations, TheCostIncludesProductAndActivation) {
  Harness h;
  Kernels* const kernels = &*h.kernels;
  const auto t = [](Shape shape) {
    return Tensor{reinterpret_cast<std::byte*>(uintptr_t{0x1000}), DType::BF16, shape};
  };
  struct Summing final : Stream {
    void record(Event&) override {}
    void wait(const Event&) override {}
    void copy(void*, const void*, size_t, CopyKind) override {}
    void submit(const Cost& cost, HostFunction) override {
      flops += cost.flops;
      products += cost.flops - cost.vector_flops;
      bytes += cost.bytes;
    }
    void synchronize() override {}
    StreamStats stats() const override { return {}; }
    double flops = 0, products = 0, bytes = 0;
  };
  constexpr int64_t n = 100, c = 32, oc = 64;
  Summing backward;
  kernels->submit(backward, ActivationLinearBackward{t({n, oc}), t({n, c}), t({c, oc}), t({n, oc}),
                                                     Activation::GeluTanh});
  EXPECT_EQ(backward.products, 2.0 * n * c * oc);
  EXPECT_GT(backward.flops, backward.products);
  EXPECT_GE(backward.bytes, 2.0 * (n * c + c * oc + 2 * n * oc));
  EXPECT_THROW(kernels->submit(backward, ActivationLinearBackward{t({n, oc}), t({n, c}), t({c, oc}),
                                                                  t({n, c}), Activation::GeluTanh}),
               LogicError);
}

}  // namespace
}  // namespace ebb::test::tests_of_linear_activation

// The kernels of examples/embed/ on the emulated GPU: the same results as on the host, and a
// backward that is the derivative of the forward.
#include <gtest/gtest.h>

#include "autograd/gradient_check.h"
#include "autograd/primitives.h"
#include "examples/embed/swish.h"
#include "examples/embed/swish_kernels.h"
#include "tests/kernels/harness.h"

namespace ebb::test::tests_of_example_kernels {
namespace {

constexpr int64_t kRows = 37, kColumns = 300;

static_assert(RunsOnHost<SwishForward> && RunsOnGpu<SwishForward>);

/// The results of the three kernels.
struct Results {
  Array y{DType::F32, {kRows, kColumns}};
  Array dx = random_array(DType::F32, {kRows, kColumns}, 4);
  Array dslope = random_array(DType::F32, {kColumns}, 5);
};

/// run(kernel) runs one kernel.
template <class Run>
Results results_of(Write write, const Run& run) {
  const Array x = random_array(DType::F32, {kRows, kColumns}, 1, 3.0);
  const Array slope = random_array(DType::F32, {kColumns}, 2);
  const Array dy = random_array(DType::F32, {kRows, kColumns}, 3);
  Results results;
  run(SwishForward{results.y, x, slope});
  run(SwishBackwardInput{results.dx, dy, x, slope, write});
  run(SwishBackwardSlope{results.dslope, dy, x, slope, write});
  return results;
}

TEST(OwnKernelOfTheExample, ComputesTheSameOnTheHostAndOnAGpu) {
  for (const Write write : {Write::Store, Write::Add}) {
    ThreadTeam team(2);
    const Results host = results_of(write, [&](const auto& kernel) { kernel.run(team); });
    Harness h;
    const Results gpu =
        results_of(write, [&](const auto& kernel) { h.kernels->submit(h.stream, kernel); });
    const auto expect_close = [](const Array& got, const Array& want, double scale) {
      EXPECT_TRUE(close(got.values(), want.values(), Values(want.values().size(), scale), 1e-6,
                        DType::F32));
    };
    expect_close(gpu.y, host.y, 3);
    expect_close(gpu.dx, host.dx, 3);
    expect_close(gpu.dslope, host.dslope, kRows);
  }
}

/// A linear layer, swish and the mean squared error.
class SwishModel : public Model {
 public:
  const Parameters& parameters() const override { return parameters_; }
  std::vector<InputSpec> inputs() const override {
    return {{"x", {5, 8}, DType::F32}, {"targets", {5, 8}, DType::F32}};
  }
  void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const override {
    x = swish(tape, linear(tape, x, weight_), slope_);
    mean_squared_error(tape, softmax(tape, x), inputs[1]);
  }

 private:
  Parameters parameters_;
  ParameterId weight_ = parameters_.add("weight", {8, 8}, Init::normal(0.5f));
  ParameterId slope_ = parameters_.add("slope", {8}, Init::ones());
};

TEST(OwnKernelOfTheExample, PassesTheGradientCheckOnAGpu) {
  const SwishModel model;
  const Array x = random_array(DType::F32, {5, 8}, 1),
              targets = random_array(DType::F32, {5, 8}, 2);
  const Tensor inputs[] = {x, targets};
  const GradientCheck check = check_gradients(
      model, inputs,
      {.elements_per_parameter = 8, .device = {.profile = {.kind = DeviceKind::Cuda}}});
  EXPECT_TRUE(check.passed()) << check.message();
  EXPECT_EQ(check.num_elements, 16);
  EXPECT_TRUE(check.too_small.empty()) << check.message();
}

}  // namespace
}  // namespace ebb::test::tests_of_example_kernels

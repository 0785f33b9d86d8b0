// The model of regression.h on a GPU, or on the emulated one: close to the host, and the same bits
// for every schedule.
#include <gtest/gtest.h>

#include "tests/trainer/on_gpu.h"
#include "tests/trainer/regression.h"

namespace ebb::test {
namespace {

class GpuRegression : public OnGpu, public testing::WithParamInterface<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, GpuRegression, testing::Values(DType::F32, DType::BF16, DType::F16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(GpuRegression, TrainsLikeTheHostWithTheSameBitsForEverySchedule) {
  TrainingCase run = on_gpu({.dtype = GetParam(), .accumulation = 2, .update = UpdateOrder::Wait});
  run.num_steps = 2;
  const Outcome expected = regression_outcome(run);
  TrainingCase on_host = run;
  on_host.device = DeviceKind::Host;
  const Outcome host = regression_outcome(on_host);
  const double relative = GetParam() == DType::F32 ? 1e-5 : 1e-2;
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(expected.losses[i], host.losses[i], relative * host.losses[i]);
    EXPECT_NEAR(expected.norms[i], host.norms[i], relative * host.norms[i]);
  }
  run.memory = Memory::Smallest;
  run.recompute = kRecomputeEach;
  run.order = MicroBatchOrder::Vertical;
  run.activations = ActivationPlacement::Offload;
  const Outcome got = regression_outcome(run);
  EXPECT_TRUE(got == expected) << to_string(got) << "\nexpected\n" << to_string(expected);
}

}  // namespace
}  // namespace ebb::test

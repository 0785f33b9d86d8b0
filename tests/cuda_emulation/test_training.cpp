// Training end to end on the emulated GPU: the same executor, trainer and kernels as on a real one.
// Results from here are called emulated.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/cuda_emulation/emulated_device.h"
#include "tests/trainer/cases.h"

namespace ebb::test {
namespace {

/// Small chunks, as elsewhere in the tests; a real GPU maps multiples of 2 MiB.
class EmulatedTraining : public testing::Test {
 protected:
  EmulatedTraining() { emulation::settings().granularity = size_t{64} << 10; }
  ~EmulatedTraining() override { emulation::settings() = {}; }
};

TrainingCase on_emulated_gpu() {
  return {.device = DeviceKind::Cuda, .evaluation_batches = 1, .num_steps = 2};
}

TEST_F(EmulatedTraining, BitsDoNotDependOnTheBudget) {
  TrainingCase run = on_emulated_gpu();
  const Outcome resident = train(run).outcome;
  run.memory = Memory::Smallest;
  const Result smallest = train(run);
  EXPECT_EQ(smallest.outcome, resident);
  EXPECT_GT(smallest.loaded_bytes, 0u);
}

TEST_F(EmulatedTraining, BitsDoNotDependOnTheSchedule) {
  TrainingCase run = on_emulated_gpu();
  run.accumulation = 2;
  run.clip = false;
  const Outcome plain = train(run).outcome;
  run.memory = Memory::Between;
  run.order = MicroBatchOrder::Vertical;
  run.recompute = Recompute::Block;
  run.activations = ActivationPlacement::Offload;
  run.between = Between::State;
  run.num_pieces = 2;
  EXPECT_EQ(train(run).outcome, plain);
}

// Two backends that sum in other orders, from the same weights on the same data.
TEST_F(EmulatedTraining, TrainsAsTheHostDoes) {
  TrainingCase run = on_emulated_gpu();
  run.dtype = DType::F32;
  const Outcome gpu = train(run).outcome;
  run.device = DeviceKind::Host;
  const Outcome host = train(run).outcome;
  for (size_t i = 0; i < host.losses.size(); ++i) {
    EXPECT_NEAR(gpu.losses[i], host.losses[i], 1e-5 * host.losses[i]) << "step " << i;
    EXPECT_NEAR(gpu.norms[i], host.norms[i], 1e-4 * host.norms[i]) << "step " << i;
  }
  for (size_t i = 0; i < host.evaluations.size(); ++i) {
    EXPECT_NEAR(gpu.evaluations[i], host.evaluations[i], 1e-5 * host.evaluations[i]);
  }
}

}  // namespace
}  // namespace ebb::test

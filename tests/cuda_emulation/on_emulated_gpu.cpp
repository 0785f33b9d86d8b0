// Tests of a GPU use the emulated GPU instead, with sizes that make a step fast.
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/cuda_emulation/launch_queue.h"
#include "tests/trainer/on_gpu.h"

namespace ebb::test {

/// A small granularity allows the small chunks of the tests.
OnGpu::OnGpu() {
  emulation::settings().granularity = size_t{64} << 10;
  emulation::forget_full_queues();
}

OnGpu::~OnGpu() {
  EXPECT_EQ(emulation::live(), emulation::Live());  // everything has been freed
  EXPECT_EQ(emulation::num_full_queues(), 0u);
  emulation::settings() = {};
}

void OnGpu::SetUp() {}

TrainingCase on_gpu(TrainingCase run) {
  run.device = DeviceKind::Cuda;
  run.model = emulated_gpt();
  run.length = 16;
  run.num_steps = 2;
  return run;
}

size_t smallest_chunk_on_gpu() { return size_t{64} << 10; }

}  // namespace ebb::test

#include "tests/trainer/on_gpu.h"

#include <cstdlib>
#include <string_view>

namespace ebb::test {

OnGpu::OnGpu() = default;
OnGpu::~OnGpu() = default;

void OnGpu::SetUp() {
  const CudaProbe probe = probe_cuda();
  if (!probe.devices.empty()) return;
  const char* required = std::getenv("EBB_REQUIRE_CUDA");
  if (required != nullptr && std::string_view(required) == "1") {
    FAIL() << "EBB_REQUIRE_CUDA=1, but: " << probe.note;
  }
  GTEST_SKIP() << probe.note;
}

/// 3.2 M parameters: four chunks of bf16.
TrainingCase on_gpu(TrainingCase run) {
  run.device = DeviceKind::Cuda;
  run.model = {
      .vocabulary = 257, .max_positions = 64, .channels = 256, .num_layers = 4, .num_heads = 4};
  run.length = 64;
  run.num_steps = 2;
  run.num_pieces *= smallest_chunk_on_gpu() / (kPieceElements * size_of(run.dtype));
  return run;
}

size_t smallest_chunk_on_gpu() { return size_t{2} << 20; }

}  // namespace ebb::test

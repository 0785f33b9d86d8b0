// GPT-2, the Llama family and BERT on a GPU, or on the emulated one, against the same runs by
// PyTorch and transformers in fp64 (tests/fixtures/).
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/model_zoo/reference_run.h"
#include "tests/trainer/on_gpu.h"

namespace ebb::test {
namespace {

struct Reference {
  const char* architecture;
  const char* name;
};
void PrintTo(const Reference& r, std::ostream* os) { *os << r.architecture << " " << r.name; }

class GpuModels : public OnGpu, public testing::WithParamInterface<Reference> {};

/// Runs only the first steps, because the emulated GPU is slow.
TEST_P(GpuModels, TrainLikePyTorch) {
  ReferenceRun reference = load_reference(GetParam().name, GetParam().architecture);
  constexpr size_t kSteps = 2;
  reference.steps.resize(kSteps);
  RunSettings settings{.chunk_bytes = std::max(size_t{256} << 10, smallest_chunk_on_gpu()),
                       .smallest_budget = true,
                       .device = DeviceKind::Cuda};
  const RunResult gpu = run_reference(reference, settings);
  for (size_t s = 0; s < kSteps; ++s) {
    EXPECT_NEAR(gpu.losses[s], reference.losses[s], 1e-6 * reference.losses[s]) << "step " << s;
    EXPECT_NEAR(gpu.norms[s], reference.norms[s], 4e-6 * reference.norms[s]) << "step " << s;
  }
  settings.recompute = kRecomputeEach;
  settings.smallest_budget = false;
  EXPECT_EQ(run_reference(reference, settings).state_hash, gpu.state_hash);
}

INSTANTIATE_TEST_SUITE_P(Cases, GpuModels,
                         testing::Values(Reference{"gpt2", "clipped"}, Reference{"llama", "llama3"},
                                         Reference{"llama", "mistral"}, Reference{"llama", "qwen3"},
                                         Reference{"llama", "packed"}, Reference{"bert", "mlm"}),
                         [](const auto& info) {
                           return std::string(info.param.architecture) + "_" + info.param.name;
                         });

}  // namespace
}  // namespace ebb::test

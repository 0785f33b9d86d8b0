// Training GPT-2 in bf16 against PyTorch in fp64: PyTorch's own bf16 run (fp32 masters, bf16 weights and activations)
// says how much rounding may cost.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/model_zoo/reference_run.h"

namespace ebb::test {
namespace {

constexpr double kShareOfPyTorch = 1.5;

class Gpt2Bf16 : public testing::TestWithParam<std::string> {};

TEST_P(Gpt2Bf16, DeviatesNoMoreThanPyTorchDoes) {
  const ReferenceRun reference = load_reference(GetParam());
  const RunResult result = run_ebb(reference, {.dtype = DType::BF16});
  const double loss = rms_deviation(result.losses, reference.losses);
  const double norm = rms_deviation(result.norms, reference.norms);
  const double torch_loss = rms_deviation(reference.bf16_losses, reference.losses);
  const double torch_norm = rms_deviation(reference.bf16_norms, reference.norms);
  std::cout << "loss " << loss << " torch " << torch_loss << " norm " << norm << " torch " << torch_norm
            << "\n";
  EXPECT_LT(loss, kShareOfPyTorch * torch_loss);
  EXPECT_LT(norm, kShareOfPyTorch * torch_norm);
}

TEST_P(Gpt2Bf16, SmallestBudgetGivesTheSameBits) {
  const ReferenceRun reference = load_reference(GetParam());
  const RunResult resident = run_ebb(reference, {.dtype = DType::BF16});
  const RunResult tight = run_ebb(reference, {.dtype = DType::BF16,
                                              .chunk_bytes = 128 << 10,
                                              .recompute = Recompute::Block,
                                              .smallest_budget = true,
                                              .num_threads = 2});
  EXPECT_EQ(tight.losses, resident.losses);
  EXPECT_EQ(tight.norms, resident.norms);
  EXPECT_EQ(tight.state_hash, resident.state_hash);
}

INSTANTIATE_TEST_SUITE_P(Cases, Gpt2Bf16, testing::Values("constant", "clipped", "linear", "wide"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ebb::test

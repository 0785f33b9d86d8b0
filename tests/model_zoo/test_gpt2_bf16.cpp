// Training GPT-2 in bf16 and in fp16 compared with PyTorch in fp64. The allowed deviation is that
// of a run of PyTorch with fp32 masters and weights and activations in 16 bits.
#include <gtest/gtest.h>

#include "tests/model_zoo/reference_run.h"

namespace ebb::test {
namespace {

bool within_pytorchs(const ReferenceRun& reference, const RunResult& result) {
  const double loss = rms_deviation(result.losses, reference.losses);
  const double norm = rms_deviation(result.norms, reference.norms);
  const double torch_loss = rms_deviation(reference.bf16_losses, reference.losses);
  const double torch_norm = rms_deviation(reference.bf16_norms, reference.norms);
  return loss < 1.2 * torch_loss && norm < 1.2 * torch_norm;
}

/// The tolerance is larger because fp16 rounds little, so single steps dominate the deviation.
bool within_pytorchs_fp16(const ReferenceRun& reference, const RunResult& result) {
  const double loss = rms_deviation(result.losses, reference.losses);
  const double norm = rms_deviation(result.norms, reference.norms);
  return loss < 1.5 * rms_deviation(reference.fp16_losses, reference.losses) &&
         norm < 1.5 * rms_deviation(reference.fp16_norms, reference.norms);
}

class Gpt2Bf16 : public testing::TestWithParam<std::string> {};

TEST_P(Gpt2Bf16, DeviatesNoMoreThanPyTorch) {
  const ReferenceRun reference = load_reference(GetParam());
  EXPECT_TRUE(within_pytorchs(reference, run_reference(reference, {.dtype = DType::BF16})));
}

TEST_P(Gpt2Bf16, DeviatesNoMoreThanPyTorchInFp16) {
  const ReferenceRun reference = load_reference(GetParam());
  EXPECT_TRUE(within_pytorchs_fp16(reference, run_reference(reference, {.dtype = DType::F16})));
}

TEST_P(Gpt2Bf16, SmallestBudgetGivesTheSameBits) {
  const ReferenceRun reference = load_reference(GetParam());
  const RunResult resident = run_reference(reference, {.dtype = DType::BF16});
  const RunResult tight = run_reference(reference, {.dtype = DType::BF16,
                                                    .chunk_bytes = 128 << 10,
                                                    .recompute = kRecomputeEach,
                                                    .smallest_budget = true,
                                                    .num_threads = 2});
  EXPECT_EQ(tight.losses, resident.losses);
  EXPECT_EQ(tight.norms, resident.norms);
  EXPECT_EQ(tight.state_hash, resident.state_hash);
}

INSTANTIATE_TEST_SUITE_P(Cases, Gpt2Bf16, testing::Values("constant", "clipped", "linear", "wide"),
                         [](const auto& info) { return info.param; });

// ---- Defects that the comparison must find ------------------------------------------------------

TEST(Gpt2Bf16Defect, ARepeatedMicroBatchIsFound) {
  const ReferenceRun reference = load_reference("clipped");
  EXPECT_FALSE(within_pytorchs(
      reference, run_reference(reference, {.dtype = DType::BF16, .change_step = [](auto& batches) {
                                             batches[1] = batches[0];
                                           }})));
}

/// The tolerance of fp16 is small enough to find a run in bf16.
TEST(Gpt2Bf16Defect, Bf16InsteadOfFp16IsFound) {
  const ReferenceRun reference = load_reference("clipped");
  EXPECT_FALSE(within_pytorchs_fp16(reference, run_reference(reference, {.dtype = DType::BF16})));
}

TEST(Gpt2Bf16Defect, AMissingLowHalfOfTheMastersIsFound) {
  const ReferenceRun reference = load_reference("wide");
  const RunResult rounded = run_reference(
      reference,
      {.dtype = DType::BF16, .before_step = [](Trainer& trainer, const Model& model, double) {
         for (const Parameter& p : model.parameters()) {
           std::vector<float> masters = trainer.read_parameter(p.name);
           for (float& x : masters) x = BF16(x);
           trainer.write_parameter(p.name, masters);
         }
       }});
  EXPECT_FALSE(within_pytorchs(reference, rounded));
}

}  // namespace
}  // namespace ebb::test

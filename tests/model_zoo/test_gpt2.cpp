// Training GPT-2 in fp32 is near PyTorch in fp64. The comparison finds defects.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "tests/model_zoo/reference_run.h"

namespace ebb::test {

void PrintTo(const Deviation& d, std::ostream* os) {
  *os << "loss " << d.loss << ", norm " << d.norm << ", weights " << d.weight << ", their sums "
      << d.weight_sum;
}

namespace {

constexpr size_t kChunkBytes = 256 << 10;

// The fp32 run of PyTorch deviates by up to 1.4e-7 (losses), 4e-7 (norms) and 5e-5 (weights).
bool losses_agree(const Deviation& d) { return d.loss < 1e-6; }
bool norms_agree(const Deviation& d) { return d.norm < 4e-6; }
bool weights_agree(const Deviation& d) { return d.weight < 5e-6 && d.weight_sum < 5e-7; }

class Gpt2Reference : public testing::TestWithParam<std::string> {};

TEST_P(Gpt2Reference, TrainsLikePyTorch) {
  const ReferenceRun reference = load_reference(GetParam());
  const Deviation d = deviation(reference, run_reference(reference));
  EXPECT_TRUE(losses_agree(d)) << testing::PrintToString(d);
  EXPECT_TRUE(norms_agree(d)) << testing::PrintToString(d);
  EXPECT_TRUE(weights_agree(d)) << testing::PrintToString(d);
}

TEST_P(Gpt2Reference, LearningRatesEqualThoseOfPyTorch) {
  const ReferenceRun reference = load_reference(GetParam());
  for (size_t s = 0; s < reference.steps.size(); ++s) {
    EXPECT_DOUBLE_EQ(reference.learning_rate.at(s), reference.learning_rates[s]) << "step " << s;
  }
}

TEST_P(Gpt2Reference, SmallestBudgetGivesTheSameBits) {
  const ReferenceRun reference = load_reference(GetParam());
  const RunResult resident = run_reference(reference);
  for (const Recompute& recompute : {kRecomputeNone, kRecomputeEach}) {
    const RunResult tight = run_reference(reference, {.chunk_bytes = kChunkBytes,
                                                      .recompute = recompute,
                                                      .smallest_budget = true,
                                                      .num_threads = 2});
    EXPECT_EQ(tight.losses, resident.losses);
    EXPECT_EQ(tight.norms, resident.norms);
    EXPECT_EQ(tight.parameters, resident.parameters);
    EXPECT_EQ(tight.state_hash, resident.state_hash);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Gpt2Reference,
                         testing::Values("constant", "clipped", "linear", "wide"),
                         [](const auto& info) { return info.param; });

TEST(Gpt2Reference, SomeStepsAreClipped) {
  for (const char* name : {"clipped", "wide"}) {
    const ReferenceRun reference = load_reference(name);
    const auto num_clipped = std::count_if(
        reference.norms.begin(), reference.norms.end(),
        [&](double norm) { return norm > static_cast<double>(reference.options.max_grad_norm); });
    EXPECT_GE(num_clipped, 5) << name;
    EXPECT_LE(num_clipped, 15) << name;
  }
}

TEST(Gpt2Reference, SmallestBudgetMovesChunksInEveryStep) {
  const ReferenceRun reference = load_reference("wide");
  const RunResult tight =
      run_reference(reference, {.chunk_bytes = kChunkBytes, .smallest_budget = true});
  EXPECT_GE(tight.num_weight_chunks, 4u);
  // Each micro-batch uses all weights twice. The last chunk is not full.
  const size_t passes = 2 * reference.steps.size() * reference.options.gradient_accumulation;
  EXPECT_GT(tight.loaded_bytes, passes * (tight.num_weight_chunks - 2) * kChunkBytes);
}

// ---- Defects that the comparison must find ------------------------------------------------------

Deviation deviation_with(std::string_view name, const RunSettings& settings) {
  const ReferenceRun reference = load_reference(name);
  return deviation(reference, run_reference(reference, settings));
}

TEST(Gpt2Defect, AnotherBeta2IsFound) {
  const Deviation d = deviation_with(
      "clipped", {.change_options = [](TrainerOptions& o) { o.adam.beta2 = 0.951; }});
  EXPECT_FALSE(losses_agree(d));
  EXPECT_FALSE(weights_agree(d));
}

TEST(Gpt2Defect, AnotherBeta1IsFound) {
  const Deviation d = deviation_with(
      "constant", {.change_options = [](TrainerOptions& o) { o.adam.beta1 = 0.901; }});
  EXPECT_FALSE(losses_agree(d));
}

TEST(Gpt2Defect, AnotherEpsilonIsFound) {
  const Deviation d = deviation_with(
      "constant", {.change_options = [](TrainerOptions& o) { o.adam.epsilon = 1e-6; }});
  EXPECT_FALSE(weights_agree(d));
}

TEST(Gpt2Defect, ARepeatedMicroBatchIsFound) {
  const Deviation d = deviation_with(
      "clipped",
      {.change_step = [](std::vector<MicroBatch>& batches) { batches[1] = batches[0]; }});
  EXPECT_FALSE(losses_agree(d));
  EXPECT_FALSE(norms_agree(d));
}

TEST(Gpt2Defect, AMeanThatCountsIgnoredLabelsIsFound) {
  const Deviation d =
      deviation_with("clipped", {.change_step = [](std::vector<MicroBatch>& batches) {
                       for (MicroBatch& b : batches) {
                         b.num_targets = static_cast<uint64_t>(b.inputs[2].num_elements());
                       }
                     }});
  EXPECT_FALSE(losses_agree(d));
  EXPECT_FALSE(norms_agree(d));
}

TEST(Gpt2Defect, SkippedClippingIsFound) {
  const Deviation d =
      deviation_with("clipped", {.change_options = [](TrainerOptions& o) { o.max_grad_norm = 0; }});
  EXPECT_FALSE(losses_agree(d));
  EXPECT_FALSE(weights_agree(d));
}

TEST(Gpt2Defect, DecayOfVectorsIsFound) {
  const ReferenceRun reference = load_reference("constant");
  const double decay = reference.options.adam.weight_decay;
  const Deviation d = deviation(
      reference, run_reference(reference, {.before_step = [&](Trainer& trainer, const Model& model,
                                                              double rate) {
                                 for (const Parameter& p : model.parameters()) {
                                   if (p.shape.rank() >= 2) continue;
                                   std::vector<float> values = trainer.read_parameter(p.name);
                                   for (float& x : values)
                                     x *= static_cast<float>(1 - rate * decay);
                                   trainer.write_parameter(p.name, values);
                                 }
                               }}));
  EXPECT_FALSE(losses_agree(d));
  EXPECT_FALSE(weights_agree(d));
}

TEST(Gpt2Defect, AMissingDecayIsFound) {
  const Deviation d = deviation_with(
      "constant", {.change_options = [](TrainerOptions& o) { o.adam.weight_decay = 0; }});
  EXPECT_FALSE(losses_agree(d));
}

TEST(Gpt2Defect, AScheduleOneStepLateIsFound) {
  const Deviation d =
      deviation_with("clipped", {.learning_rate = [](const LearningRate& lr, uint64_t s) {
                       return lr.at(s == 0 ? 0 : s - 1);
                     }});
  EXPECT_FALSE(losses_agree(d));
}

TEST(Gpt2Defect, PositionsThatAllStartAtZeroAreFound) {
  std::vector<int32_t> zero_based;
  const Deviation d = deviation_with(
      "constant", {.change_step = [&](std::vector<MicroBatch>& batches) {
        const Tensor positions = batches[0].inputs[1];
        zero_based.resize(static_cast<size_t>(positions.num_elements()));
        for (size_t i = 0; i < zero_based.size(); ++i) {
          zero_based[i] = static_cast<int32_t>(i % static_cast<size_t>(positions.dim(1)));
        }
        batches[0].inputs[1].data = reinterpret_cast<std::byte*>(zero_based.data());
      }});
  EXPECT_FALSE(losses_agree(d));
}

}  // namespace
}  // namespace ebb::test

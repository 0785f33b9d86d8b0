// Inference gives the same bits as the evaluation of a trainer, for every budget. It stores only
// the weights in host memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "scheduler/run/inference.h"
#include "tests/trainer/cases.h"

namespace ebb::test {
namespace {

constexpr size_t kSmallestChunk = size_t{65536} * 2;  // bf16

InferenceOptions options_of(DType dtype) {
  return {.dtype = dtype, .chunk_bytes = 65536 * size_of(dtype), .seed = 1};
}

/// Runs inference of small_gpt() on batches of Data.
struct Running {
  Gpt2 model;
  Data data;
  ForwardSpec pass;
  PreparedInference prepared;
  std::unique_ptr<Device> device;
  std::unique_ptr<Inference> inference;

  explicit Running(DType dtype, std::optional<size_t> device_memory = {}, int num_threads = 1)
      : model(small_gpt(), kMicroBatchSize, kLength, dtype),
        data(small_gpt(), kLength, 2, 3),
        pass{.model = &model,
             .num_losses = kMicroBatchSize * kLength,
             .logits_rows = kMicroBatchSize * kLength,
             .num_classes = small_gpt().vocabulary} {
    prepared =
        prepare_inference({&pass, 1}, options_of(dtype),
                          {.device_memory = device_memory, .device = {.num_threads = num_threads}});
    device = create_device({.profile = {.num_threads = num_threads},
                            .memory_bytes = prepared.ledger.total(Tier::Device),
                            .poison = true});
    inference = std::make_unique<Inference>(*device, prepared);
  }

  struct Results {
    std::vector<double> sums;
    std::vector<float> losses, logits;
    bool operator==(const Results&) const = default;
  };
  Results run() {
    Results results;
    for (const MicroBatch& batch : data.micro_batches()) {
      results.sums.push_back(inference->run(0, batch));
      const auto losses = inference->losses().span<float>();
      results.losses.insert(results.losses.end(), losses.begin(), losses.end());
      std::vector<float> logits(
          static_cast<size_t>(kMicroBatchSize * kLength * small_gpt().vocabulary));
      inference->read_logits(0, logits);
      results.logits.insert(results.logits.end(), logits.begin(), logits.end());
    }
    return results;
  }
};

/// Returns the loss of the same batches in the evaluation of a trainer with the same seed.
double evaluated(DType dtype) {
  const Gpt2 model(small_gpt(), kMicroBatchSize, kLength, dtype);
  const Data data(small_gpt(), kLength, 2, 3);
  TrainerOptions options{.dtype = dtype, .evaluation_batches = 2};
  const Preparation prepared = prepare(model, options, {.device = {.num_threads = 1}});
  const auto device = create_device({.profile = {.num_threads = 1}});
  Trainer trainer(model, *device, prepared);
  return trainer.evaluate(data.micro_batches());
}

TEST(InferenceTest, GivesTheLossOfATrainersEvaluation) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    Running run(dtype);
    uint64_t num_targets = 0;
    for (const MicroBatch& batch : run.data.micro_batches()) num_targets += batch.num_targets;
    const Running::Results results = run.run();
    EXPECT_EQ((results.sums[0] + results.sums[1]) / static_cast<double>(num_targets),
              evaluated(dtype));
  }
}

/// Emulated kernels sleep and compute nothing. Weights are loaded; losses stay 0.
TEST(InferenceTest, RunsWithEmulatedCompute) {
  const Running real(DType::BF16);
  const auto device = create_device({.profile = {.num_threads = 1},
                                     .memory_bytes = real.prepared.ledger.total(Tier::Device),
                                     .emulate_compute = ComputeRates{.flops_per_s = 1e12}});
  Inference inference(*device, real.prepared);
  for (const MicroBatch& batch : real.data.micro_batches()) {
    EXPECT_EQ(inference.run(0, batch), 0);
    EXPECT_EQ(inference.losses().span<float>()[0], 0);
  }
}

TEST(InferenceTest, GivesTheSameBitsInTheSmallestBudget) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    Running resident(dtype);
    const Running::Results want = resident.run();
    const PreparedInference p = Running(dtype, {}, 2).prepared;  // each thread has a workspace
    const size_t chunk_bytes = p.layout->chunk_bytes();
    EXPECT_LT(p.smallest_device_bytes, p.layout->space_bytes(Space::Weights));
    for (const size_t more : {size_t{0}, chunk_bytes, 4 * chunk_bytes}) {
      Running tight(dtype, p.smallest_device_bytes + more, 2);
      EXPECT_EQ(tight.run(), want) << more;
      EXPECT_LE(tight.device->peak_bytes(), p.smallest_device_bytes + more);
    }
  }
}

TEST(InferenceTest, KeepsTheWeightsThatFit) {
  Running resident(DType::BF16);
  const size_t weights = resident.prepared.layout->num_chunks();
  resident.run();
  EXPECT_EQ(resident.inference->loaded_bytes(), 0u);  // all weights stayed on the device
  size_t before = SIZE_MAX;
  for (const size_t more : {0, 3, 6}) {
    Running tight(DType::BF16, resident.prepared.smallest_device_bytes + more * kSmallestChunk);
    tight.run();
    EXPECT_LT(tight.inference->loaded_bytes(), before);
    EXPECT_GT(tight.inference->loaded_bytes(), 0u);
    before = tight.inference->loaded_bytes();
  }
  EXPECT_LE(before, (weights - 4) * kSmallestChunk);
}

TEST(InferenceTest, LossesAgreeWithLogits) {
  Running run(DType::F32);
  const Running::Results results = run.run();
  const auto vocabulary = static_cast<size_t>(small_gpt().vocabulary);
  size_t row = 0;
  for (const MicroBatch& batch : run.data.micro_batches()) {
    double sum = 0;
    for (const int32_t target : batch.inputs[2].span<int32_t>()) {
      const float* logits = results.logits.data() + row * vocabulary;
      double total = 0;
      for (size_t v = 0; v < vocabulary; ++v) total += std::exp(static_cast<double>(logits[v]));
      const double want = target < 0 ? 0 : std::log(total) - logits[target];
      EXPECT_NEAR(results.losses[row], want, 1e-5);
      sum += want;
      ++row;
    }
    EXPECT_NEAR(results.sums[row / static_cast<size_t>(kMicroBatchSize * kLength) - 1], sum, 1e-3);
  }
}

TEST(InferenceTest, WithoutALossGivesTheLogitsOfTheLastRows) {
  Running whole(DType::BF16);
  const Running::Results want = whole.run();
  ForwardSpec pass = whole.pass;
  pass.loss = false;
  pass.num_losses = 0;
  pass.logits_rows = 3;
  const PreparedInference prepared =
      prepare_inference({&pass, 1}, options_of(DType::BF16), {.device = {.num_threads = 1}});
  const auto device = create_device({.profile = {.num_threads = 1}});
  Inference inference(*device, prepared);
  EXPECT_EQ(inference.run(0, whole.data.micro_batches()[1]), 0);
  std::vector<float> logits(static_cast<size_t>(3 * pass.num_classes));
  inference.read_logits(0, logits);
  EXPECT_TRUE(std::equal(logits.rbegin(), logits.rend(), want.logits.rbegin()));
}

TEST(InferenceTest, StoresOnlyWeightsInHostMemory) {
  const Running run(DType::BF16);
  const size_t weights = run.prepared.layout->num_space_elements() * 2;
  EXPECT_EQ(run.prepared.ledger.bytes("weight", Tier::Host), weights);
  const size_t others = run.prepared.input_bytes + run.prepared.result_bytes + sizeof(double);
  EXPECT_EQ(run.prepared.ledger.total(Tier::Host), weights + others);
  EXPECT_EQ(run.device->used_bytes(), run.prepared.ledger.total(Tier::Device));
}

TEST(InferenceTest, AllocatesNothingAfterItsFirstRun) {
  Running run(DType::BF16);
  run.run();
  const uint64_t allocations = run.device->num_allocations();
  run.run();
  EXPECT_EQ(run.device->num_allocations(), allocations);
}

TEST(InferenceTest, WeightsAreReadAndWrittenByName) {
  Running run(DType::BF16);
  const Running::Results before = run.run();
  std::vector<float> bias = run.inference->read_parameter("ln_f.bias");
  EXPECT_EQ(bias, std::vector<float>(128, 0.0f));
  std::ranges::fill(bias, 1.00390625f);  // halfway between two bf16 values: rounds away from zero
  run.inference->write_parameter("ln_f.bias", bias);
  EXPECT_EQ(run.inference->read_parameter("ln_f.bias"), std::vector<float>(128, 1.0078125f));
  EXPECT_NE(run.run().losses, before.losses);  // the device must not use old resident weights
  std::ranges::fill(bias, 0.0f);
  run.inference->write_parameter("ln_f.bias", bias);
  EXPECT_EQ(run.run().losses, before.losses);
  EXPECT_THROW(run.inference->read_parameter("none"), ConfigError);
  EXPECT_THROW(run.inference->write_parameter("ln_f.bias", std::vector<float>(3)), LogicError);
}

TEST(InferenceTest, InvalidBudgetsAndInputsAreRefused) {
  Running run(DType::BF16);
  const PreparedInference& p = run.prepared;
  const auto prepared_with = [&](const Budgets& budgets) {
    return prepare_inference({&run.pass, 1}, options_of(DType::BF16), budgets);
  };
  EXPECT_THROW(
      prepared_with({.device_memory = p.smallest_device_bytes - 1, .device = {.num_threads = 1}}),
      PlanError);
  EXPECT_NO_THROW(
      prepared_with({.device_memory = p.smallest_device_bytes, .device = {.num_threads = 1}}));
  EXPECT_THROW(
      prepared_with({.host_memory = p.ledger.total(Tier::Host) - 1, .device = {.num_threads = 1}}),
      PlanError);
  EXPECT_THROW(
      prepared_with({.total_memory = p.ledger.total(Tier::Host), .device = {.num_threads = 1}}),
      PlanError);
  const auto device = create_device({.profile = {.num_threads = 2}});
  EXPECT_THROW(Inference(*device, p), ConfigError);
  MicroBatch batch = run.data.micro_batches()[0];
  batch.inputs.pop_back();
  EXPECT_THROW(run.inference->run(0, batch), LogicError);
}

TEST(InferenceTest, TrainingWithAKeyValueCacheIsRefused) {
  const Gpt2 model(small_gpt(), 1, 1, DType::F32, false, 8);
  EXPECT_THROW(prepare(model, {.dtype = DType::F32}, {.device = {.num_threads = 1}}), ConfigError);
  EXPECT_THROW(Gpt2(small_gpt(), 1, 1, DType::F32, true, 8), ConfigError);
  EXPECT_THROW(Gpt2(small_gpt(), 1, 1, DType::F32, false, 33), ConfigError);
}

}  // namespace
}  // namespace ebb::test

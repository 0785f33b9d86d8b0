// Training end to end on a GPU or on the emulated GPU, with the same executor, trainer and kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <thread>

#include "model_zoo/checkpoint.h"
#include "model_zoo/gpt2.h"
#include "scheduler/plan/kept_mappings.h"
#include "scheduler/plan/simulate.h"
#include "tests/trainer/checkpoint_cases.h"
#include "tests/trainer/identity.h"
#include "tests/trainer/on_gpu.h"

namespace ebb::test {
namespace {

namespace fs = std::filesystem;

class GpuTraining : public OnGpu {
 protected:
  /// Expects that each run has the same bits as the run of its class with everything resident.
  void expect_same_bits(std::initializer_list<TrainingCase> runs) {
    for (const TrainingCase& run : runs) check_.run(on_gpu(run));
  }

 private:
  IdentityCheck check_;
};

constexpr MicroBatchOrder kVertical = MicroBatchOrder::Vertical;
constexpr ActivationPlacement kOffload = ActivationPlacement::Offload;

TEST_F(GpuTraining, BitsDoNotDependOnTheBudget) {
  expect_same_bits({{.memory = Memory::Smallest},
                    {.memory = Memory::Between, .num_pieces = 2},
                    {.clip = false, .memory = Memory::Smallest},
                    {.dtype = DType::F32, .memory = Memory::Smallest}});
  TrainingCase run = on_gpu({.memory = Memory::Smallest});
  EXPECT_GT(train(run).loaded_bytes, 0u);
}

/// The plan of a machine with rates: chunks return to their former blocks, where these are free.
TEST_F(GpuTraining, BitsDoNotDependOnKeptMappings) {
  const TrainingCase run = on_gpu({.memory = Memory::Between, .activations = kOffload});
  const Gpt2 model(run.model, kMicroBatchSize, run.length, run.dtype);
  Preparation kept = prepare_case(model, run);
  constexpr double kRate = 1e9;
  const Simulation times = simulate(kept.plan, kept.trace, *kept.layout,
                                    {.flops_per_s = kRate,
                                     .device_bytes_per_s = kRate,
                                     .load_bytes_per_s = kRate,
                                     .store_bytes_per_s = kRate,
                                     .update_bytes_per_s = kRate});
  kept.plan = with_kept_mappings(kept.plan, times.ops).value();
  EXPECT_EQ(train(model, kept, run).outcome, train(on_gpu({})).outcome);
}

TEST_F(GpuTraining, BitsDoNotDependOnRecomputation) {
  expect_same_bits({{.memory = Memory::Smallest, .recompute = kRecomputeEach},
                    {.recompute = recompute_together(2)},
                    {.clip = false,
                     .memory = Memory::Between,
                     .recompute = Recompute{{kWholeLayer, kKeepAll, kMlpLevel, kNormsLevel}}}});
}

TEST_F(GpuTraining, BitsDoNotDependOnTheOrderOfMicroBatches) {
  expect_same_bits(
      {{.accumulation = 3, .memory = Memory::Smallest},
       {.accumulation = 3, .memory = Memory::Between, .order = kVertical},
       {.clip = false, .accumulation = 2, .memory = Memory::Smallest, .order = kVertical},
       {.clip = false,
        .accumulation = 2,
        .memory = Memory::Smallest,
        .update = UpdateOrder::Wait}});
}

TEST_F(GpuTraining, BitsDoNotDependOnWhenUpdatesAreMade) {
  expect_same_bits({{.memory = Memory::Smallest, .update = UpdateOrder::Wait},
                    {.memory = Memory::Smallest, .update = UpdateOrder::Overlap},
                    {.clip = false, .update = UpdateOrder::Wait},
                    {.clip = false, .update = UpdateOrder::Overlap}});
}

TEST_F(GpuTraining, BitsDoNotDependOnWhereUpdatesAreMade) {
  expect_same_bits(
      {{.between = Between::State},
       {.memory = Memory::Smallest, .update = UpdateOrder::Wait, .between = Between::State},
       {.clip = false, .memory = Memory::Between, .between = Between::State},
       {.clip = false, .memory = Memory::Between, .between = Between::Weights},
       {.dtype = DType::F32, .clip = false, .between = Between::State}});
  for (const bool clip : {true, false}) {
    const TrainingCase run = on_gpu({.clip = clip, .between = Between::State});
    const Gpt2 model(run.model, kMicroBatchSize, run.length, run.dtype);
    EXPECT_GT(prepare_case(model, run).plan.count(&ChunkRecord::is_on_device), 0u);
  }
}

TEST_F(GpuTraining, BitsDoNotDependOnWhereActivationsAreStored) {
  expect_same_bits(
      {{.memory = Memory::Smallest, .activations = kOffload},
       {.memory = Memory::Smallest, .recompute = kRecomputeEach, .activations = kOffload},
       {.clip = false,
        .accumulation = 2,
        .memory = Memory::Smallest,
        .order = kVertical,
        .activations = kOffload}});
}

TEST_F(GpuTraining, EvaluationHasTheSameBitsToo) {
  expect_same_bits(
      {{.memory = Memory::Smallest, .evaluation_batches = 2},
       {.memory = Memory::Between, .between = Between::State, .evaluation_batches = 2}});
}

/// The two backends sum in different orders, so their results agree only up to rounding.
TEST_F(GpuTraining, AgreesWithTheHostBackend) {
  TrainingCase run = on_gpu({.dtype = DType::F32, .evaluation_batches = 1});
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

// ---- Memory -------------------------------------------------------------------------------------

TEST_F(GpuTraining, AllocatesWhatTheLedgerSaysBeforeTheFirstStep) {
  const TrainingCase run =
      on_gpu({.accumulation = 2, .memory = Memory::Between, .between = Between::State});
  const Gpt2 model(run.model, kMicroBatchSize, run.length, run.dtype);
  const Preparation prepared = prepare_case(model, run);
  const auto device = create_case_device(prepared, run);
  Trainer trainer(model, *device, prepared);
  const Data data(run.model, run.length, run.accumulation, 1);
  const size_t planned = prepared.ledger.total(Tier::Device);
  EXPECT_EQ(device->used_bytes(), planned);
  const uint64_t before = device->num_allocations();
  for (int step = 0; step < 3; ++step) trainer.step(data.micro_batches(), 1e-3);
  EXPECT_EQ(device->used_bytes(), planned);
  EXPECT_EQ(device->num_allocations(), before);
}

/// Sums are rounded in device memory, on their way to the host or in their slots.
TEST_F(GpuTraining, AllocatesWhatTheLedgerSaysWhereSumsAreRounded) {
  for (const bool on_devices : {false, true}) {
    const TrainingCase run = on_gpu({.accumulation = 3,
                                     .memory = Memory::Smallest,
                                     .sums_on_devices = on_devices,
                                     .group_dtype = DType::BF16});
    const Gpt2 model(run.model, kMicroBatchSize, run.length, run.dtype);
    const Preparation prepared = prepare_case(model, run);
    const auto device = create_case_device(prepared, run);
    Trainer trainer(model, *device, prepared);
    const Data data(run.model, run.length, run.accumulation, 1);
    const uint64_t before = device->num_allocations();
    for (int step = 0; step < 3; ++step) trainer.step(data.micro_batches(), 1e-3);
    EXPECT_EQ(device->used_bytes(), prepared.ledger.total(Tier::Device));
    EXPECT_EQ(device->num_allocations(), before);
  }
}

// ---- Checkpoints --------------------------------------------------------------------------------

class GpuCheckpoint : public OnGpu, public testing::WithParamInterface<TrainingCase> {
 protected:
  ~GpuCheckpoint() override {
    std::error_code ignored;
    fs::remove(file_, ignored);
  }
  const std::string file_ =
      (fs::temp_directory_path() / ("ebb-gpu-" + std::to_string(::getpid()))).string();
};

/// One run saves its state while it trains. Another run, with another schedule and budget,
/// continues from the file.
TEST_P(GpuCheckpoint, ContinuesWithTheSameBits) {
  const TrainingCase run = on_gpu(GetParam());
  Outcome whole, saved;
  {
    CaseRun training(run);
    training.train(0, 3);
    whole = training.outcome();
  }
  {
    CaseRun training(run);
    training.train(0, 2);
    std::jthread writer([reader = training.trainer().lock_state(), this]() mutable {
      write_state(std::move(reader), file_);
    });
    training.train(2, 3);
    saved = training.outcome();
  }
  EXPECT_EQ(to_string(saved), to_string(whole)) << "saving changed the run";
  TrainingCase other = run;
  other.memory = run.memory == Memory::Smallest ? Memory::Resident : Memory::Smallest;
  other.between = run.between == Between::State ? Between::Nothing : Between::State;
  other.recompute = kRecomputeEach;
  CaseRun resumed(other);
  read_state(resumed.trainer(), file_);
  resumed.train(2, 3);
  EXPECT_EQ(resumed.outcome().hash, whole.hash);
  EXPECT_EQ(resumed.outcome().losses.back(), whole.losses.back());
}

INSTANTIATE_TEST_SUITE_P(Cases, GpuCheckpoint,
                         testing::Values(TrainingCase{.memory = Memory::Smallest},
                                         TrainingCase{.clip = false, .between = Between::State},
                                         TrainingCase{.between = Between::State}));

}  // namespace
}  // namespace ebb::test

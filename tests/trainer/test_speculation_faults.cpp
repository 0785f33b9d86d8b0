// A speculative step that throws leaves the state as it was before the step.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/trainer/cases.h"
#include "tests/trainer/watchdog.h"

namespace ebb::test::tests_of_speculation_faults {
namespace {

constexpr double kLearningRate = 1e-3;
constexpr uint32_t kSteps = 3;
#if defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kMost = 12;
#else
constexpr uint64_t kMost = 40;
#endif

/// Trains steps of a small GPT at the smallest budget, where all chunks move.
struct Steps {
  explicit Steps(float max_norm, uint32_t max_skipped_steps = 3) {
    run.max_norm = max_norm;
    TrainerOptions options = run.options();
    options.max_skipped_steps = max_skipped_steps;
    const size_t least =
        prepare(model, options, {.device = {.num_threads = 1}}).smallest_device_bytes;
    prepared = prepare(model, options, {.device_memory = least, .device = {.num_threads = 1}});
  }
  std::unique_ptr<Device> create(std::function<bool(FaultSite)> fault = {}) const {
    return create_device({.profile = {.num_threads = 1},
                          .memory_bytes = prepared.ledger.total(Tier::Device),
                          .poison = true,
                          .fault = std::move(fault)});
  }
  StepResult step(Trainer& trainer, uint32_t step) const {
    const Data data(run.model, run.length, 1, 1 + step);
    return trainer.step(data.micro_batches(), kLearningRate);
  }
  /// Returns the hashes of the state before each step and after the last.
  std::vector<uint64_t> hashes() const {
    const auto device = create();
    Trainer trainer(model, *device, prepared);
    std::vector<uint64_t> hashes{trainer.state_hash()};
    for (uint32_t s = 0; s < kSteps; ++s) {
      EXPECT_GT(step(trainer, s).speculated_chunks, 0u);
      hashes.push_back(trainer.state_hash());
    }
    return hashes;
  }

  TrainingCase run{.memory = Memory::Smallest, .update = UpdateOrder::Speculate};
  Gpt2 model{small_gpt(), kMicroBatchSize, kLength, DType::BF16};
  Preparation prepared;
};

/// Fails the n-th operation of one kind. The state is read only after the step has thrown.
class AStepThatThrows : public testing::TestWithParam<FaultSite> {};

TEST_P(AStepThatThrows, LeavesTheStateUnchanged) {
  const Watchdog watchdog;
  const Steps steps(1e9f);
  const std::vector<uint64_t> expected = steps.hashes();
  uint64_t count = 0, fails_at = UINT64_MAX, begin = 0;
  const auto fault = [&](FaultSite at) { return at == GetParam() && count++ == fails_at; };
  const auto run = [&](uint64_t n) {
    count = 0;
    fails_at = n;
    const auto device = steps.create(fault);
    Trainer trainer(steps.model, *device, steps.prepared);
    begin = count;
    uint32_t step = 0;
    try {
      for (; step < kSteps; ++step) steps.step(trainer, step);
      return false;
    } catch (const DeviceError&) {
    }
    try {
      EXPECT_EQ(trainer.state_hash(), expected[step]) << "operation " << n << " of step " << step;
      return true;
    } catch (const LogicError&) {  // a deferred update of the previous step failed
      return false;
    }
  };
  run(UINT64_MAX);
  const uint64_t num = count - begin;
  uint64_t num_known = 0;
  for (uint64_t i = 0; i < kMost; ++i) num_known += run(begin + i * num / kMost);
  EXPECT_GE(num_known, kMost * 2 / 3);
}

INSTANTIATE_TEST_SUITE_P(Sites, AStepThatThrows,
                         testing::Values(FaultSite::Copy, FaultSite::Launch));

/// After too many skipped steps in a row an error is thrown. The weights are those before these
/// steps, as its message says.
TEST(Speculation, AStepBeyondTheLimitOfSkippedStepsIsRolledBack) {
  const Watchdog watchdog;
  const Steps steps(1e9f, 1);
  const auto device = steps.create();
  Trainer trainer(steps.model, *device, steps.prepared);
  steps.step(trainer, 0);
  std::vector<float> spoiled = trainer.read_parameter("wpe.weight");
  std::ranges::fill(spoiled, std::numeric_limits<float>::infinity());
  trainer.write_parameter("wpe.weight", spoiled);
  const uint64_t before = trainer.state_hash();
  EXPECT_THROW(steps.step(trainer, 1), NumericError);
  EXPECT_EQ(trainer.state_hash(), before);
}

}  // namespace
}  // namespace ebb::test::tests_of_speculation_faults

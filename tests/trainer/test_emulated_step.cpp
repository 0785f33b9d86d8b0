// Emulated steps: kernels sleep instead of computing; copies and host updates are real.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "tests/trainer/cases.h"
#include "tests/trainer/counting_malloc.h"

namespace ebb::test {
namespace {

constexpr double kCompute_s = 0.01;  // compute time of one step
constexpr double kLink = 1e9;
constexpr double kLearningRate =
    1e-2;  // large enough for the weight decay alone to change every weight

class EmulatedStep : public testing::TestWithParam<TrainingCase> {
 protected:
  EmulatedStep() : EmulatedStep(GetParam()) {}
  explicit EmulatedStep(const TrainingCase& run)
      : model_(small_gpt(), kMicroBatchSize, kLength, run.dtype),
        prepared_(prepare_case(model_, run)),
        flops_per_s_(prepared_.flops / kCompute_s),
        device_(create_device({.profile = {.num_threads = run.num_threads},
                               .memory_bytes = prepared_.ledger.total(Tier::Device),
                               .load_bytes_per_s = kLink,
                               .store_bytes_per_s = kLink,
                               .emulate_compute = ComputeRates{.flops_per_s = flops_per_s_}})),
        trainer_(model_, *device_, prepared_),
        data_(small_gpt(), kLength, run.accumulation, 3),
        evaluation_(small_gpt(), kLength, run.evaluation_batches, 4) {}

  StepResult step(double learning_rate = kLearningRate) {
    return trainer_.step(data_.micro_batches(), learning_rate);
  }
  std::vector<float> embedding() { return trainer_.read_parameter(model_.parameters()[0].name); }
  /// Returns how many master weights of the embedding (which decays) a step changes, or -1 if one
  /// is not finite.
  int64_t num_updated(double learning_rate) {
    const std::vector<float> before = embedding();
    step(learning_rate);
    const std::vector<float> after = embedding();
    int64_t count = 0;
    for (size_t i = 0; i < after.size(); ++i) {
      if (!std::isfinite(after[i])) return -1;
      count += after[i] != before[i];
    }
    return count;
  }

  const Gpt2 model_;
  const Preparation prepared_;
  const double flops_per_s_;
  const std::unique_ptr<Device> device_;
  Trainer trainer_;
  const Data data_, evaluation_;
};

TEST_P(EmulatedStep, TakesThePredictedTimeAndHasNoLosses) {
  const Machine machine{
      .flops_per_s = flops_per_s_, .load_bytes_per_s = kLink, .store_bytes_per_s = kLink};
  const Bound bound = lower_bound(prepared_.trace, *prepared_.layout, prepared_.plan, machine,
                                  prepared_.options.max_grad_norm > 0);
  for (int i = 0; i < 3; ++i) {
    const StepResult r = step();
    EXPECT_TRUE(std::isnan(r.loss));
    EXPECT_TRUE(std::isnan(r.grad_norm));
    EXPECT_FALSE(r.skipped);
    // The kernels that round gradients are not part of kCompute_s.
    EXPECT_GE(r.compute_s, kCompute_s * (1 - 1e-9));
    EXPECT_LE(r.compute_s, 1.1 * kCompute_s);
    EXPECT_GE(r.step_s, std::max(bound.compute_s, bound.load_s));
    const size_t before = i == 0 ? prepared_.warm_up_plan.loaded_bytes : 0;
    EXPECT_EQ(r.loaded_bytes, before + prepared_.plan.loaded_bytes);
    EXPECT_GT(r.update_s, 0);
  }
  if (GetParam().evaluation_batches > 0) {
    EXPECT_TRUE(std::isnan(trainer_.evaluate(evaluation_.micro_batches())));
  }
}

TEST_P(EmulatedStep, UpdatesDoTheirFullWork) {
  if (prepared_.plan.count(&ChunkRecord::is_on_device) > 0) {
    GTEST_SKIP() << "the device emulates its updates";
  }
  const auto all = static_cast<int64_t>(prepared_.layout->num_elements(0));
  for (int i = 0; i < 3; ++i) EXPECT_GT(num_updated(kLearningRate), all * 99 / 100);
  EXPECT_EQ(trainer_.num_updates(), 3);
  EXPECT_EQ(trainer_.num_skipped(), 0u);
  EXPECT_EQ(num_updated(0), 0);  // planted: an update that changes nothing is found
}

TEST_P(EmulatedStep, NothingIsAllocatedAfterStepTwo) {
  if (!counts_mallocs()) GTEST_SKIP() << "a sanitizer replaces the allocator";
  for (int i = 0; i < 2; ++i) step();
  const uint64_t allocations = device_->num_allocations(), mallocs = num_mallocs();
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(num_mallocs(), mallocs);
  EXPECT_EQ(device_->num_allocations(), allocations);
}

TEST_P(EmulatedStep, TheDeviceHoldsWhatTheLedgerSays) {
  step();
  EXPECT_EQ(device_->peak_bytes(), prepared_.ledger.total(Tier::Device));
  EXPECT_THROW(device_->allocate(MemoryKind::Device, 1, "one byte"), OutOfMemory);
}

std::vector<TrainingCase> all_kinds() {
  std::vector<TrainingCase> cases;
  for (UpdateOrder update : {UpdateOrder::Overlap, UpdateOrder::Wait}) {
    for (MicroBatchOrder order : {MicroBatchOrder::Vertical, MicroBatchOrder::Horizontal}) {
      for (bool clip : {true, false}) {
        cases.push_back({.clip = clip,
                         .accumulation = 3,
                         .memory = Memory::Smallest,
                         .num_threads = 2,
                         .update = update,
                         .order = order});
      }
    }
  }
  for (const Between between : {Between::Weights, Between::State}) {
    cases.push_back({.clip = between == Between::State,
                     .accumulation = 3,
                     .memory = Memory::Between,
                     .num_threads = 2,
                     .order = MicroBatchOrder::Vertical,
                     .between = between});
  }
  cases.push_back({.accumulation = 3,
                   .memory = Memory::Smallest,
                   .num_threads = 2,
                   .update = UpdateOrder::Speculate});
  cases.push_back({.dtype = DType::F32, .recompute = kRecomputeEach, .evaluation_batches = 2});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Kinds, EmulatedStep, testing::ValuesIn(all_kinds()));

}  // namespace
}  // namespace ebb::test

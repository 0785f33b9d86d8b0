// A model of products, softmaxes, concatenations and the mean squared error has the same bits for
// every budget, schedule and number of threads.
#include <gtest/gtest.h>

#include "tests/trainer/regression.h"

namespace ebb::test {
namespace {

class RegressionIdentity : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, RegressionIdentity,
                         testing::Values(DType::F32, DType::BF16, DType::F16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(RegressionIdentity, HasTheSameBitsForEveryScheduleAndNumberOfThreads) {
  TrainingCase run{
      .dtype = GetParam(), .accumulation = 2, .num_pieces = 4, .update = UpdateOrder::Wait};
  const Outcome expected = regression_outcome(run);
  EXPECT_GT(expected.losses[0], 0);
  EXPECT_NE(expected.losses[1], expected.losses[0]);
  const auto expect_same = [&] {
    const Outcome got = regression_outcome(run);
    EXPECT_TRUE(got == expected) << to_string(run) << '\n'
                                 << to_string(got) << "\nexpected\n"
                                 << to_string(expected);
  };
  run.num_threads = 2;
  run.update = UpdateOrder::Overlap;
  run.memory = Memory::Smallest;
  expect_same();
  run.num_threads = 3;
  run.recompute = kRecomputeEach;
  run.order = MicroBatchOrder::Vertical;
  run.activations = ActivationPlacement::Offload;
  expect_same();
  run.memory = Memory::Between;
  run.num_pieces = 1;
  run.recompute = recompute_together(2);
  run.order = MicroBatchOrder::Horizontal;
  run.activations = ActivationPlacement::Device;
  expect_same();
}

TEST(Regression, Learns) {
  const Regression model(DType::F32);
  const TrainingCase run{.dtype = DType::F32, .clip = false};
  const Preparation prepared = prepare_case(model, run);
  const auto device = create_case_device(prepared, run);
  Trainer trainer(model, *device, prepared);
  const RegressionData data(1, 1);
  const double first = trainer.step(data.batches(), 3e-3).loss;
  double last = first;
  for (int step = 0; step < 60; ++step) last = trainer.step(data.batches(), 3e-3).loss;
  EXPECT_LT(last, first / 4) << first;
}

TEST(Regression, AnInputThatDoesNotFitIsNamedWithItsSizes) {
  const Regression model(DType::F32);
  const TrainingCase run{.dtype = DType::F32};
  const Preparation prepared = prepare_case(model, run);
  const auto device = create_case_device(prepared, run);
  Trainer trainer(model, *device, prepared);
  const RegressionData data(1, 1);
  MicroBatch batch = data.batches()[0];
  batch.inputs[1] = batch.inputs[1].slice_rows(0, 20);
  try {
    trainer.step({&batch, 1}, 1e-3);
    FAIL() << "the targets have too few rows";
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "input 'targets' is (24, 128) fp32, not (20, 128) fp32");
  }
}

}  // namespace
}  // namespace ebb::test

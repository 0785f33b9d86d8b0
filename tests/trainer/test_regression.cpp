// A model of products, softmaxes, concatenations and the mean squared error has the same bits for
// every budget, schedule and number of threads.
#include <gtest/gtest.h>

#include "autograd/primitives.h"
#include "device/kernels.h"
#include "device/random.h"
#include "tests/trainer/cases.h"

namespace ebb::test {
namespace {

constexpr int64_t kRows = 24, kChannels = 128;

class Regression : public Model {
 public:
  explicit Regression(DType dtype) : dtype_(dtype) {
    for (Layer& layer : layers_) {
      layer = {add("value", kChannels), add("gate", kChannels), add("merge", 2 * kChannels)};
    }
  }
  const Parameters& parameters() const override { return parameters_; }
  std::vector<InputSpec> inputs() const override {
    return {{"x", {kRows, kChannels}, DType::F32}, {"targets", {kRows, kChannels}, DType::F32}};
  }
  Variable begin(Tape& tape, std::span<const Tensor> inputs) const override {
    // The input is fp32. Its type becomes that of the model by an addition to zeros.
    tape.begin_call("to_type", {});
    const Variable x = tape.output({kRows, kChannels}, dtype_);
    tape.end_call(
        [x, input = inputs[0]](const Forward& f) {
          f.submit(FillZero{f.value(x)});
          f.submit(Accumulate{f.value(x), input});
        },
        [](const Backward&) {});
    return linear(tape, x, in_);
  }
  uint32_t num_layers() const override { return std::size(layers_); }
  Variable layer(Tape& tape, std::span<const Tensor>, uint32_t i, Variable x) const override {
    const Layer& layer = layers_[i];
    const Variable gate = softmax(tape, linear(tape, x, layer.gate));
    const Variable y = multiply(tape, linear(tape, x, layer.value), gate);
    return ebb::add(tape, x, linear(tape, concatenate(tape, {x, y}), layer.merge));
  }
  void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const override {
    mean_squared_error(tape, linear(tape, x, in_), inputs[1]);
  }

 private:
  struct Layer {
    ParameterId value, gate, merge;
  };
  ParameterId add(const std::string& name, int64_t columns) {
    return parameters_.add(name + std::to_string(parameters_.size()), {kChannels, columns},
                           Init::normal(0.1f));
  }

  DType dtype_;
  Parameters parameters_;
  ParameterId in_ = add("in", kChannels);
  Layer layers_[4];
};

/// The inputs of a step, drawn from the seed.
class RegressionData {
 public:
  RegressionData(uint32_t num_micro_batches, uint64_t seed) : values_(2 * num_micro_batches) {
    uint64_t counter = 0;
    for (std::vector<float>& values : values_) {
      values.resize(kRows * kChannels);
      for (float& v : values) {
        v = static_cast<float>(2 * uniform(philox4x32(counter++, 0, seed)[0]) - 1);
      }
    }
    const auto tensor = [](std::vector<float>& values) {
      return Tensor{reinterpret_cast<std::byte*>(values.data()), DType::F32, {kRows, kChannels}};
    };
    for (uint32_t k = 0; k < num_micro_batches; ++k) {
      batches_.push_back({{tensor(values_[2 * k]), tensor(values_[2 * k + 1])}, kRows});
    }
  }
  const std::vector<MicroBatch>& batches() const { return batches_; }

 private:
  std::vector<std::vector<float>> values_;
  std::vector<MicroBatch> batches_;
};

Outcome outcome_of(const TrainingCase& run) {
  const Regression model(run.dtype);
  const Preparation prepared = prepare_case(model, run);
  const auto device = create_case_device(prepared, run);
  Trainer trainer(model, *device, prepared);
  Outcome outcome;
  for (uint32_t step = 0; step < run.num_steps; ++step) {
    const RegressionData data(run.accumulation, step + 1);
    const StepResult result = trainer.step(data.batches(), 1e-3);
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
  }
  outcome.hash = trainer.state_hash();
  return outcome;
}

class RegressionIdentity : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, RegressionIdentity,
                         testing::Values(DType::F32, DType::BF16, DType::F16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(RegressionIdentity, HasTheSameBitsForEveryScheduleAndNumberOfThreads) {
  TrainingCase run{
      .dtype = GetParam(), .accumulation = 2, .num_pieces = 4, .update = UpdateOrder::Wait};
  const Outcome expected = outcome_of(run);
  EXPECT_GT(expected.losses[0], 0);
  EXPECT_NE(expected.losses[1], expected.losses[0]);
  const auto expect_same = [&] {
    const Outcome got = outcome_of(run);
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
  run.recompute = Recompute{.layers_at_once = 2};
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

}  // namespace
}  // namespace ebb::test

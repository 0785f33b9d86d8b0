#include "tests/trainer/regression.h"

#include "device/kernels.h"
#include "device/random.h"

namespace ebb::test {

Regression::Regression(DType dtype) : dtype_(dtype) {
  in_ = add("in", kChannels);
  for (Layer& layer : layers_) {
    layer = {add("value", kChannels), add("gate", kChannels), add("merge", 2 * kChannels)};
  }
}

ParameterId Regression::add(const std::string& name, int64_t columns) {
  return parameters_.add(name + std::to_string(parameters_.size()), {kChannels, columns},
                         Init::normal(0.1f));
}

std::vector<InputSpec> Regression::inputs() const {
  return {{"x", {kRows, kChannels}, DType::F32}, {"targets", {kRows, kChannels}, DType::F32}};
}

Variable Regression::begin(Tape& tape, std::span<const Tensor> inputs) const {
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

Variable Regression::layer(Tape& tape, std::span<const Tensor>, uint32_t i, Variable x) const {
  const Layer& layer = layers_[i];
  const Variable gate = softmax(tape, linear(tape, x, layer.gate));
  const Variable y = multiply(tape, linear(tape, x, layer.value), gate);
  return ebb::add(tape, x, linear(tape, concatenate(tape, {x, y}), layer.merge));
}

void Regression::end(Tape& tape, std::span<const Tensor> inputs, Variable x) const {
  mean_squared_error(tape, linear(tape, x, in_), inputs[1]);
}

RegressionData::RegressionData(uint32_t num_micro_batches, uint64_t seed)
    : values_(2 * num_micro_batches) {
  const auto tensor = [](std::vector<float>& values) {
    return Tensor{reinterpret_cast<std::byte*>(values.data()),
                  DType::F32,
                  {Regression::kRows, Regression::kChannels}};
  };
  uint64_t counter = 0;
  for (std::vector<float>& values : values_) {
    values.resize(Regression::kRows * Regression::kChannels);
    for (float& v : values) {
      v = static_cast<float>(2 * uniform(philox4x32(counter++, 0, seed)[0]) - 1);
    }
  }
  for (uint32_t k = 0; k < num_micro_batches; ++k) {
    batches_.push_back({{tensor(values_[2 * k]), tensor(values_[2 * k + 1])}, Regression::kRows});
  }
}

Outcome regression_outcome(const TrainingCase& run) {
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

}  // namespace ebb::test

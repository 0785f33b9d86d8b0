// A program that embeds Ebb: its own model, with a primitive of its own (swish.h), its own data and
// its own training loop, on a device whose budget is smaller than the model's weights.
#include <ebb/ebb.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spirals.h"
#include "swish.h"

namespace {

constexpr int64_t kBatch = 64;
constexpr int64_t kChannels = 512;
constexpr int kNumLayers = 12;

/// Only the forward is written; the backward follows from it.
class Classifier : public ebb::Model {
 public:
  Classifier() {
    in_ = add_linear("in", kChannels, 2, 1.0f);
    for (int i = 0; i < kNumLayers; ++i) {
      const std::string name = "layer." + std::to_string(i);
      Layer layer;
      layer.linear = add_linear(name, kChannels, kChannels, 0.01f);
      layer.slope = parameters_.add(name + ".slope", {kChannels}, ebb::Init::ones());
      layers_.push_back(layer);
    }
    out_ = add_linear("out", kNumClasses, kChannels, 0.02f);
  }

  const ebb::Parameters& parameters() const override { return parameters_; }

  std::vector<ebb::InputSpec> inputs() const override {
    return {{"points", {kBatch, 2}, ebb::DType::F32}, {"labels", {kBatch}, ebb::DType::I32}};
  }

  ebb::Variable begin(ebb::Tape& tape, std::span<const ebb::Tensor> inputs) const override {
    const ebb::Variable points{.value = inputs[0]};  // an input: no gradient
    return ebb::linear(tape, points, in_.weight, in_.bias);
  }

  uint32_t num_layers() const override { return kNumLayers; }

  ebb::Variable layer(ebb::Tape& tape, std::span<const ebb::Tensor>, uint32_t i,
                      ebb::Variable x) const override {
    const Layer& layer = layers_[i];
    const ebb::Variable y = ebb::linear(tape, x, layer.linear.weight, layer.linear.bias);
    return ebb::add(tape, x, swish(tape, y, layer.slope));
  }

  void end(ebb::Tape& tape, std::span<const ebb::Tensor> inputs, ebb::Variable x) const override {
    x = ebb::linear(tape, x, out_.weight, out_.bias);
    ebb::cross_entropy(tape, x, inputs[1]);
  }

 private:
  struct Linear {
    ebb::ParameterId weight = 0, bias = 0;
  };
  struct Layer {
    Linear linear;
    ebb::ParameterId slope = 0;
  };

  Linear add_linear(const std::string& name, int64_t outputs, int64_t inputs, float deviation) {
    return {parameters_.add(name + ".weight", {outputs, inputs}, ebb::Init::normal(deviation)),
            parameters_.add(name + ".bias", {outputs}, ebb::Init::zeros())};
  }

  ebb::Parameters parameters_;
  Linear in_, out_;
  std::vector<Layer> layers_;
};

/// One micro-batch of spirals in host memory, refilled before every step.
class Batch {
 public:
  const ebb::MicroBatch& draw(std::mt19937& random) {
    draw_spirals(random, points_, labels_);
    return micro_batch_;
  }

 private:
  template <class T>
  static ebb::Tensor view(std::vector<T>& values, ebb::Shape shape) {
    return {reinterpret_cast<std::byte*>(values.data()), ebb::dtype_of<T>(), shape};
  }

  std::vector<float> points_ = std::vector<float>(2 * kBatch);
  std::vector<int32_t> labels_ = std::vector<int32_t>(kBatch);
  ebb::MicroBatch micro_batch_{{view(points_, {kBatch, 2}), view(labels_, {kBatch})}, kBatch};
};

/// Weights by name, from training to a run that keeps nothing else: the loss without gradients.
double loss_of(ebb::Trainer& trainer, const ebb::MicroBatch& batch, size_t budget) {
  const Classifier model;
  const ebb::ForwardSpec pass{.model = &model};
  const ebb::PreparedInference prepared = ebb::prepare_inference(
      {&pass, 1}, {.dtype = ebb::DType::F32, .chunk_bytes = 256 << 10, .random_weights = false},
      {.device_memory = budget});
  const auto device = ebb::create_device({.memory_bytes = budget});
  ebb::Inference inference(*device, prepared);
  trainer.visit_parameters(
      [&inference](std::string_view name, const ebb::Shape&, std::span<const float> values) {
        inference.write_parameter(name, values);
      });
  return inference.run(0, batch) / static_cast<double>(batch.num_targets);
}

int train() {
  const Classifier model;
  const ebb::TrainerOptions options{.dtype = ebb::DType::F32,
                                    .chunk_bytes = 256 << 10,
                                    .schedule = {.recompute = ebb::kRecomputeEach}};
  const size_t budget = 8 << 20;

  const ebb::Preparation prepared = ebb::prepare(model, options, {.device_memory = budget});
  const size_t weight_bytes = prepared.layout->space_bytes(ebb::Space::Weights);
  std::printf("Ebb %s: %s of weights, a device budget of %s (%s would hold everything)\n",
              ebb::version().data(), ebb::format_bytes(weight_bytes).c_str(),
              ebb::format_bytes(budget).c_str(),
              ebb::format_bytes(prepared.full_device_bytes).c_str());
  if (budget >= weight_bytes) return 1;  // then this would show nothing

  const auto device = ebb::create_device({.memory_bytes = budget});
  ebb::Trainer trainer(model, *device, prepared);
  std::mt19937 random(1);
  Batch batch;
  double first = 0, last = 0;
  for (int step = 1; step <= 80; ++step) {
    const ebb::StepResult result = trainer.step({&batch.draw(random), 1}, 1e-4);
    if (step == 1) first = result.loss;
    last = result.loss;
    if (step % 10 == 0) std::printf("step %d  loss %.4f\n", step, result.loss);
  }
  std::printf("loss %.4f -> %.4f, device peak %s\n", first, last,
              ebb::format_bytes(device->peak_bytes()).c_str());
  const ebb::MicroBatch& fresh = batch.draw(random);
  const double before = loss_of(trainer, fresh, budget);
  std::vector<float> bias = trainer.read_parameter("out.bias");
  bias[0] += 30;
  trainer.write_parameter("out.bias", bias);
  const double after = loss_of(trainer, fresh, budget);
  std::printf("loss without gradients %.4f, with a bias for the first class %.4f\n", before, after);
  if (before > first / 2 || after < before + 1) return 1;
  return last < first / 2 && device->peak_bytes() <= budget ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return train();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

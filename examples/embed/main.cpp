// A program that embeds Ebb: its own model (classifier.h), with a primitive of its own (swish.h),
// its own data and its own training loop, on a device whose budget is smaller than the model's
// weights. Then it saves, restores and changes the state (state.h).
//
//   embed [host|cuda [FILE]]        [host embed.state]; FILE: where it saves the state
#include <ebb/ebb.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "classifier.h"
#include "spirals.h"
#include "state.h"

namespace {

constexpr size_t kBudget = 8 << 20;

/// One micro-batch of spirals in host memory, refilled before every step.
class Batch {
 public:
  explicit Batch(int64_t size)
      : points_(static_cast<size_t>(2 * size)),
        labels_(static_cast<size_t>(size)),
        micro_batch_{{view(points_, {size, 2}), view(labels_, {size})},
                     static_cast<uint64_t>(size)} {}

  const ebb::MicroBatch& draw(std::mt19937& random) {
    draw_spirals(random, points_, labels_);
    return micro_batch_;
  }

 private:
  template <class T>
  static ebb::Tensor view(std::vector<T>& values, ebb::Shape shape) {
    return {reinterpret_cast<std::byte*>(values.data()), ebb::dtype_of<T>(), shape};
  }

  std::vector<float> points_;
  std::vector<int32_t> labels_;
  ebb::MicroBatch micro_batch_;
};

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("not true: " + what);
}

/// Compares the backward of swish with differences of the loss, on a small model.
void check_backward(const ebb::DeviceProfile& profile) {
  const Classifier model({.batch = 8, .channels = 16, .num_layers = 2});
  std::mt19937 random(1);
  Batch batch(8);
  const ebb::GradientCheck check =
      ebb::check_gradients(model, batch.draw(random).inputs, {.device = {.profile = profile}});
  std::printf("%s\n", check.message().c_str());
  expect(check.passed(), "the gradients are right");
}

/// Weights by name, from training to a run that keeps nothing else: the loss without gradients.
double loss_of(ebb::Trainer& trainer, const ebb::MicroBatch& batch, ebb::DeviceKind kind) {
  const Classifier model({});
  const ebb::ForwardSpec pass{.model = &model};
  const ebb::PreparedInference prepared = ebb::prepare_inference(
      {&pass, 1}, {.dtype = ebb::DType::F32, .chunk_bytes = 256 << 10, .random_weights = false},
      {.device_memory = kBudget, .device = {.kind = kind}});
  const auto device = ebb::create_device({.profile = {.kind = kind}, .memory_bytes = kBudget});
  ebb::Inference inference(*device, prepared);
  trainer.visit_parameters(
      [&inference](std::string_view name, const ebb::Shape&, std::span<const float> values) {
        inference.write_parameter(name, values);
      });
  return inference.run(0, batch) / static_cast<double>(batch.num_targets);
}

/// Restores the state in another trainer, which then makes the same step.
void check_state(ebb::Trainer& trainer, const ebb::Preparation& prepared, const Classifier& model,
                 ebb::DeviceKind kind, const std::string& file) {
  std::mt19937 random(2);
  Batch batch(ClassifierSizes{}.batch);
  const ebb::MicroBatch& next = batch.draw(random);

  const uint64_t saved = trainer.state_hash();
  const Snapshot snapshot(trainer);
  std::future<void> saving = start_saving(trainer, file);
  const double loss = trainer.step({&next, 1}, 1e-4).loss;  // while the file is written
  const uint64_t after = trainer.state_hash();
  saving.get();
  std::future<float> finding = start_largest_master(trainer);

  const auto device = ebb::create_device({.profile = {.kind = kind}, .memory_bytes = kBudget});
  ebb::Trainer another(model, *device, prepared);
  ebb::read_state(another, file);
  expect(another.state_hash() == saved, "the file has the state before the step");
  expect(another.num_updates() == trainer.num_updates() - 1, "the file has the counters");
  expect(another.step({&next, 1}, 1e-4).loss == loss, "the step after it has the same loss");
  expect(another.state_hash() == after, "and ends with the same bits");

  expect(finding.get() > 0, "some weights are not 0");

  snapshot.restore(another);
  expect(another.state_hash() == saved, "the snapshot has the same state");

  copy_weights(trainer, another);
  expect(another.read_parameter("out.weight") == trainer.read_parameter("out.weight"),
         "the weights are copied");
  scale_weights(another, model, "out.weight", 0.5f);
  expect(another.read_parameter("out.weight")[5] == trainer.read_parameter("out.weight")[5] / 2,
         "the weights are halved");
  std::printf("state %016llx after %lld updates, %llu skipped steps: saved and restored\n",
              static_cast<unsigned long long>(saved),
              static_cast<long long>(trainer.num_updates() - 1),
              static_cast<unsigned long long>(trainer.num_skipped()));
}

void train(ebb::DeviceKind kind, const std::string& file) {
  const Classifier model({});
  const ebb::TrainerOptions options{.dtype = ebb::DType::F32,
                                    .chunk_bytes = 256 << 10,
                                    .schedule = {.recompute = ebb::kRecomputeEach}};

  const ebb::Preparation prepared =
      ebb::prepare(model, options, {.device_memory = kBudget, .device = {.kind = kind}});
  const size_t weight_bytes = prepared.layout->space_bytes(ebb::Space::Weights);
  std::printf("Ebb %s: %s of weights, a device budget of %s (%s would hold everything)\n",
              ebb::version().data(), ebb::format_bytes(weight_bytes).c_str(),
              ebb::format_bytes(kBudget).c_str(),
              ebb::format_bytes(prepared.full_device_bytes).c_str());
  expect(kBudget < weight_bytes, "the weights do not fit");

  const auto device = ebb::create_device({.profile = {.kind = kind}, .memory_bytes = kBudget});
  ebb::Trainer trainer(model, *device, prepared);
  std::mt19937 random(1);
  Batch batch(ClassifierSizes{}.batch);
  double first = 0, last = 0;
  for (int step = 1; step <= 80; ++step) {
    const ebb::StepResult result = trainer.step({&batch.draw(random), 1}, 1e-4);
    if (step == 1) first = result.loss;
    last = result.loss;
    if (step % 10 == 0) std::printf("step %d  loss %.4f\n", step, result.loss);
  }
  std::printf("loss %.4f -> %.4f, device peak %s\n", first, last,
              ebb::format_bytes(device->peak_bytes()).c_str());
  expect(last < first / 2 && device->peak_bytes() <= kBudget, "it learns within the budget");

  check_state(trainer, prepared, model, kind, file);

  const ebb::MicroBatch& fresh = batch.draw(random);
  const double before = loss_of(trainer, fresh, kind);
  std::vector<float> bias = trainer.read_parameter("out.bias");
  bias[0] += 30;
  trainer.write_parameter("out.bias", bias);
  const double after = loss_of(trainer, fresh, kind);
  std::printf("loss without gradients %.4f, with a bias for the first class %.4f\n", before, after);
  expect(before < first / 2 && after > before + 1, "the bias decides");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const bool on_gpu = argc > 1 && std::string_view(argv[1]) == "cuda";
    const ebb::DeviceKind kind = on_gpu ? ebb::DeviceKind::Cuda : ebb::DeviceKind::Host;
    check_backward({.kind = kind});
    train(kind, argc > 2 ? argv[2] : "embed.state");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

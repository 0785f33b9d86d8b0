// Trains a small classifier of handwritten digits three times: with steps of 64 images in 1, 4 and
// 16 micro-batches. Gradient accumulation is a matter of memory alone: the three curves are one.
//
//   mnist_mlp FOLDER [EPOCHS]    [3]
//
// FOLDER: examples/mnist_mlp/digits, or one with MNIST's own four files, unpacked.
#include <ebb/ebb.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "digits.h"

namespace {

constexpr int64_t kImagesPerStep = 64;
constexpr int64_t kHidden = 128;
constexpr double kLearningRate = 2e-3;

std::vector<int64_t> widths(const Digits& digits) {
  return {digits.num_pixels, kHidden, kHidden, kNumClasses};
}

/// A step's images, as `num_batches` micro-batches in host memory.
class Batches {
 public:
  Batches(const Digits& digits, int64_t num_batches) : digits_(digits) {
    const int64_t size = kImagesPerStep / num_batches, pixels = digits.num_pixels;
    pixels_.resize(static_cast<size_t>(kImagesPerStep * pixels));
    labels_.resize(kImagesPerStep);
    for (int64_t i = 0; i < num_batches; ++i) {
      batches_.push_back({.inputs = {view(&pixels_[i * size * pixels], {size, pixels}),
                                     view(&labels_[i * size], {size})},
                          .num_targets = static_cast<uint64_t>(size)});
    }
  }

  /// The images at positions [position, position + kImagesPerStep) of the order.
  std::span<const ebb::MicroBatch> load(const ebb::SampleOrder& order, uint64_t position) {
    const auto num_pixels = static_cast<size_t>(digits_.num_pixels);
    for (size_t i = 0; i < labels_.size(); ++i) {
      const size_t image = order.sample(position + i);
      labels_[i] = digits_.labels[image];
      std::transform(&digits_.pixels[image * num_pixels],
                     &digits_.pixels[image * num_pixels] + num_pixels, &pixels_[i * num_pixels],
                     [](uint8_t pixel) { return pixel / 255.0f; });
    }
    return batches_;
  }

 private:
  template <class T>
  static ebb::Tensor view(T* values, ebb::Shape shape) {
    return {reinterpret_cast<std::byte*>(values), ebb::dtype_of<T>(), shape};
  }

  const Digits& digits_;
  std::vector<float> pixels_;
  std::vector<int32_t> labels_;
  std::vector<ebb::MicroBatch> batches_;
};

/// y = W x + b, written out: what a trained model is worth can be checked with its weights alone.
std::vector<float> linear(const std::vector<float>& x, const std::vector<float>& weight,
                          const std::vector<float>& bias) {
  std::vector<float> y = bias;
  for (size_t row = 0; row < y.size(); ++row) {
    for (size_t i = 0; i < x.size(); ++i) y[row] += weight[row * x.size() + i] * x[i];
  }
  return y;
}

/// The share of images that the trained weights know.
double accuracy(ebb::Trainer& trainer, const Digits& digits) {
  std::vector<std::vector<float>> weights, biases;
  for (size_t i = 0; i + 1 < widths(digits).size(); ++i) {
    const std::string layer = "layers." + std::to_string(i);
    weights.push_back(trainer.read_parameter(layer + ".weight"));
    biases.push_back(trainer.read_parameter(layer + ".bias"));
  }
  size_t num_right = 0;
  const auto num_pixels = static_cast<size_t>(digits.num_pixels);
  for (size_t image = 0; image < digits.size(); ++image) {
    std::vector<float> x(num_pixels);
    for (size_t i = 0; i < num_pixels; ++i) x[i] = digits.pixels[image * num_pixels + i] / 255.0f;
    for (size_t i = 0; i < weights.size(); ++i) {
      x = linear(x, weights[i], biases[i]);
      if (i + 1 == weights.size()) break;
      for (float& value : x) value = std::max(value, 0.0f);
    }
    num_right += std::ranges::max_element(x) - x.begin() == digits.labels[image];
  }
  return static_cast<double>(num_right) / static_cast<double>(digits.size());
}

struct Run {
  std::vector<double> losses;  // of every step
  size_t device_bytes = 0;
  double accuracy = 0;
};

Run train(const Digits& digits, const Digits& test, int64_t num_batches, uint64_t num_steps) {
  const ebb::Mlp model(widths(digits), kImagesPerStep / num_batches, ebb::DType::F32);
  ebb::TrainerOptions options{.dtype = ebb::DType::F32, .chunk_bytes = 256 << 10};
  options.gradient_accumulation = static_cast<uint32_t>(num_batches);
  options.adam.weight_decay = 0;
  const ebb::Preparation prepared = ebb::prepare(model, options, {});
  const auto device = ebb::create_device({});
  ebb::Trainer trainer(model, *device, prepared);

  const ebb::SampleOrder order(digits.size(), ebb::DataOrder::Shuffled, 1);
  Batches batches(digits, num_batches);
  Run run;
  for (uint64_t step = 0; step < num_steps; ++step) {
    const auto& micro_batches = batches.load(order, step * kImagesPerStep);
    run.losses.push_back(trainer.step(micro_batches, kLearningRate).loss);
  }
  run.device_bytes = device->peak_bytes();
  run.accuracy = accuracy(trainer, test);
  return run;
}

/// The largest distance between two curves in their first steps. Sums are taken in another order,
/// so the last bits differ, and thousands of steps make that grow.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr size_t kFirstSteps = 50;
  double most = 0;
  for (size_t i = 0; i < std::min(a.size(), kFirstSteps); ++i) {
    most = std::max(most, std::abs(a[i] - b[i]));
  }
  return most;
}

int compare(const std::string& folder, uint64_t epochs) {
  const Digits digits = read_digits(folder, "train"), test = read_digits(folder, "t10k");
  const uint64_t num_steps = epochs * digits.size() / kImagesPerStep;
  if (num_steps == 0) throw std::runtime_error("fewer images than a step takes");
  std::printf("%zu images of %lld pixels, %zu to test with; %llu steps of %lld images\n",
              digits.size(), static_cast<long long>(digits.num_pixels), test.size(),
              static_cast<unsigned long long>(num_steps), static_cast<long long>(kImagesPerStep));
  std::vector<double> first;
  bool same = true;
  for (const int64_t num_batches : {1, 4, 16}) {
    const Run run = train(digits, test, num_batches, num_steps);
    if (first.empty()) first = run.losses;
    const double apart = distance(run.losses, first);
    same = same && apart < 1e-5;
    std::printf(
        "%2lld micro-batches: loss %.4f -> %.4f, %.1e from the first curve; device %s; right %.1f "
        "%%\n",
        static_cast<long long>(num_batches), run.losses.front(), run.losses.back(), apart,
        ebb::format_bytes(run.device_bytes).c_str(), 100 * run.accuracy);
  }
  return same ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2) throw std::runtime_error("usage: mnist_mlp FOLDER [EPOCHS]");
    return compare(argv[1], argc > 2 ? std::stoull(argv[2]) : 3);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

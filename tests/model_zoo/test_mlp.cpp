// Training an Mlp against plain loops in fp64: losses, gradient norms and weights of some AdamW
// steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model_zoo/mlp.h"
#include "tests/model_zoo/reference_run.h"

namespace ebb::test {
namespace {

using Values = std::vector<double>;

constexpr int64_t kBatch = 6;
constexpr int32_t kIgnored = -100;
constexpr double kLearningRate = 0.01;
const std::vector<int64_t> kWidths = {11, 9, 13, 5};

struct Batch {
  std::vector<float> x;  // (B, features)
  std::vector<int32_t> labels;
};

/// Weights and biases by id, trained in fp64 as the textbook says.
class Reference {
 public:
  Reference(const Parameters& parameters, const TrainerOptions& options) : options_(options) {
    for (ParameterId id = 0; id < parameters.size(); ++id) {
      const std::vector<float> values = initial_values(parameters[id], id, 9);
      weights_.emplace_back(values.begin(), values.end());
      decayed_.push_back(parameters[id].shape.rank() == 2);
      momentum_.emplace_back(values.size(), 0.0);
      variance_.emplace_back(values.size(), 0.0);
    }
  }

  StepResult step(const std::vector<Batch>& batches) {
    StepResult result;
    for (const Batch& b : batches) {
      result.num_targets +=
          static_cast<uint64_t>(kBatch - std::count(b.labels.begin(), b.labels.end(), kIgnored));
    }
    gradients_.clear();
    for (const Values& w : weights_) gradients_.emplace_back(w.size(), 0.0);
    const double scale = 1.0 / static_cast<double>(result.num_targets);
    for (const Batch& b : batches) {
      for (int64_t row = 0; row < kBatch; ++row) {
        if (b.labels[row] != kIgnored) result.loss += scale * add_row(b, row, scale);
      }
    }
    double squares = 0;
    for (const Values& g : gradients_) {
      for (const double x : g) squares += x * x;
    }
    result.grad_norm = std::sqrt(squares);
    const double limit = static_cast<double>(options_.max_grad_norm);
    adam(std::min(1.0, limit / (result.grad_norm + 1e-6)));
    return result;
  }

  const Values& weights(ParameterId id) const { return weights_[id]; }

 private:
  size_t num_layers() const { return kWidths.size() - 1; }

  Values linear(size_t layer, const Values& x) const {
    Values y = weights_[2 * layer + 1];
    for (size_t o = 0; o < y.size(); ++o) {
      for (size_t i = 0; i < x.size(); ++i) y[o] += weights_[2 * layer][o * x.size() + i] * x[i];
    }
    return y;
  }

  /// One row's loss; adds its gradients.
  double add_row(const Batch& batch, int64_t row, double scale) {
    const auto first = batch.x.begin() + row * kWidths[0];
    std::vector<Values> x = {Values(first, first + kWidths[0])};
    for (size_t layer = 0; layer < num_layers(); ++layer) {
      Values y = linear(layer, x.back());
      if (layer + 1 < num_layers()) {
        for (double& value : y) value = std::max(value, 0.0);
      }
      x.push_back(std::move(y));
    }
    Values dy = x.back();
    double sum = 0;
    for (const double logit : dy) sum += std::exp(logit);
    const size_t label = static_cast<size_t>(batch.labels[row]);
    const double loss = std::log(sum) - dy[label];
    for (double& value : dy) value = std::exp(value) / sum * scale;
    dy[label] -= scale;
    for (size_t layer = num_layers(); layer-- > 0;) dy = backward(layer, x[layer], dy);
    return loss;
  }

  Values backward(size_t layer, const Values& x, const Values& dy) {
    Values dx(x.size(), 0.0);
    for (size_t o = 0; o < dy.size(); ++o) {
      gradients_[2 * layer + 1][o] += dy[o];
      for (size_t i = 0; i < x.size(); ++i) {
        gradients_[2 * layer][o * x.size() + i] += dy[o] * x[i];
        dx[i] += weights_[2 * layer][o * x.size() + i] * dy[o];
      }
    }
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] <= 0) dx[i] = 0;  // of ReLU; the gradient of the input itself is not used
    }
    return dx;
  }

  void adam(double gradient_scale) {
    const AdamW& a = options_.adam;
    ++t_;
    for (size_t id = 0; id < weights_.size(); ++id) {
      for (size_t i = 0; i < weights_[id].size(); ++i) {
        const double g = gradients_[id][i] * gradient_scale;
        double& m = momentum_[id][i];
        double& v = variance_[id][i];
        m = a.beta1 * m + (1 - a.beta1) * g;
        v = a.beta2 * v + (1 - a.beta2) * g * g;
        if (decayed_[id]) weights_[id][i] *= 1 - kLearningRate * a.weight_decay;
        const double v_hat = v / (1 - std::pow(a.beta2, t_));
        weights_[id][i] -=
            kLearningRate * m / (1 - std::pow(a.beta1, t_)) / (std::sqrt(v_hat) + a.epsilon);
      }
    }
  }

  TrainerOptions options_;
  std::vector<Values> weights_, gradients_, momentum_, variance_;
  std::vector<bool> decayed_;
  int t_ = 0;
};

/// Features and labels. About a fifth of the labels is ignored.
Batch make_batch(uint64_t index) {
  const Shape shape{kBatch, kWidths[0]};
  Batch batch{.x = initial_values({.name = "x", .shape = shape, .init = {}},
                                  static_cast<ParameterId>(index), 77),
              .labels = {}};
  for (float& x : batch.x) x *= 8;
  for (int64_t row = 0; row < kBatch; ++row) {
    const int64_t n = static_cast<int64_t>(index) * 3 + row * 2;
    batch.labels.push_back(n % 5 == 4 ? kIgnored : static_cast<int32_t>(n % kWidths.back()));
  }
  return batch;
}

std::vector<Batch> make_step(uint64_t step, uint64_t num_micro_batches) {
  std::vector<Batch> batches;
  for (uint64_t k = 0; k < num_micro_batches; ++k) {
    batches.push_back(make_batch(step * num_micro_batches + k));
  }
  return batches;
}

std::vector<MicroBatch> views(std::vector<Batch>& batches) {
  std::vector<MicroBatch> result;
  for (Batch& b : batches) {
    const auto ignored = std::count(b.labels.begin(), b.labels.end(), kIgnored);
    result.push_back(
        {.inputs = {{reinterpret_cast<std::byte*>(b.x.data()), DType::F32, {kBatch, kWidths[0]}},
                    {reinterpret_cast<std::byte*>(b.labels.data()), DType::I32, {kBatch}}},
         .num_targets = static_cast<uint64_t>(kBatch - ignored)});
  }
  return result;
}

/// The largest relative deviation of losses, norms and weights over three steps.
double largest_deviation(const TrainerOptions& of_reference, const TrainerOptions& of_trainer) {
  const Mlp model(kWidths, kBatch, DType::F32);
  const Preparation prepared = prepare(model, of_trainer, {.num_threads = 1});
  const auto device = create_device({.num_threads = 1, .poison = true});
  Trainer trainer(model, *device, prepared);
  for (ParameterId id = 0; id < model.parameters().size(); ++id) {
    trainer.write_parameter(model.parameters()[id].name,
                            initial_values(model.parameters()[id], id, 9));
  }
  Reference reference(model.parameters(), of_reference);
  double largest = 0;
  const auto compare = [&](double value, double expected, double magnitude) {
    largest = std::fmax(largest, std::abs(value - expected) / magnitude);
  };
  for (uint64_t s = 0; s < 3; ++s) {
    std::vector<Batch> batches = make_step(s, of_reference.gradient_accumulation);
    const StepResult expected = reference.step(batches);
    const auto micro_batches = views(batches);
    const StepResult result = trainer.step(
        std::span(micro_batches).first(of_trainer.gradient_accumulation), kLearningRate);
    compare(result.loss, expected.loss, expected.loss);
    compare(result.grad_norm, expected.grad_norm, expected.grad_norm);
    for (ParameterId id = 0; id < model.parameters().size(); ++id) {
      const auto values = trainer.read_parameter(model.parameters()[id].name);
      for (size_t i = 0; i < values.size(); ++i) {
        compare(static_cast<double>(values[i]), reference.weights(id)[i], 0.25);
      }
    }
  }
  return largest;
}

constexpr double kTolerance = 1e-6;
// The norms are 0.29, 0.37 and 0.31, so two of the three steps are clipped.
const TrainerOptions kOptions{.dtype = DType::F32,
                              .chunk_bytes = 256 << 10,
                              .gradient_accumulation = 2,
                              .max_grad_norm = 0.3f};

TEST(Mlp, TrainsAsPlainLoopsInFp64) {
  EXPECT_LT(largest_deviation(kOptions, kOptions), kTolerance);
}

TEST(Mlp, AnotherBeta2OrASkippedClipIsFound) {
  TrainerOptions changed = kOptions;
  changed.adam.beta2 = 0.96;
  EXPECT_GT(largest_deviation(kOptions, changed), kTolerance);
  changed = kOptions;
  changed.max_grad_norm = 10;
  EXPECT_GT(largest_deviation(kOptions, changed), kTolerance);
}

TEST(Mlp, AMissingMicroBatchIsFound) {
  TrainerOptions changed = kOptions;
  changed.gradient_accumulation = 1;
  EXPECT_GT(largest_deviation(kOptions, changed), kTolerance);
}

TEST(Mlp, InvalidWidthsAreRejected) {
  EXPECT_THROW(Mlp({5}, 2, DType::F32), ConfigError);
  EXPECT_THROW(Mlp({5, 0, 3}, 2, DType::F32), ConfigError);
  EXPECT_THROW(Mlp({5, 3}, 0, DType::F32), ConfigError);
  EXPECT_NO_THROW(Mlp({5, 3}, 2, DType::F32));
}

}  // namespace
}  // namespace ebb::test

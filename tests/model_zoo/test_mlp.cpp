// Training an Mlp is near a reference in fp64: losses, gradient norms and weights of some AdamW
// steps.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "device/ignored_label.h"
#include "model_zoo/mlp.h"
#include "tests/model_zoo/reference_run.h"

namespace ebb::test {
namespace {

constexpr int64_t kBatch = 6;
constexpr double kLearningRate = 0.01;
const std::vector<int64_t> kWidths = {11, 9, 13, 5};

struct Batch {
  std::vector<float> x;  // (B, features)
  std::vector<int32_t> labels;
};

/// The same training in fp64, from the definitions. Weights (outputs, inputs) and biases (1,
/// outputs) are matrices by parameter id.
class Reference {
 public:
  Reference(const Parameters& parameters, const TrainerOptions& options) : options_(options) {
    for (ParameterId id = 0; id < parameters.size(); ++id) {
      const std::vector<float> values = initial_values(parameters[id], id, 9);
      const bool is_weight = parameters[id].shape.rank() == 2;
      const int64_t rows = is_weight ? parameters[id].shape[0] : 1;
      weights_.push_back(
          Eigen::Map<const FloatMatrix>(values.data(), rows, std::ssize(values) / rows)
              .cast<double>());
      momentum_.push_back(0 * weights_.back());
      variance_.push_back(0 * weights_.back());
    }
  }

  StepResult step(const std::vector<Batch>& batches) {
    StepResult result;
    for (const Batch& b : batches) {
      result.num_targets += static_cast<uint64_t>(
          kBatch - std::count(b.labels.begin(), b.labels.end(), kIgnoredLabel));
    }
    gradients_.clear();
    for (const Matrix& w : weights_) gradients_.push_back(0 * w);
    const double scale = 1.0 / static_cast<double>(result.num_targets);
    for (const Batch& b : batches) result.loss += scale * add_gradients(b, scale);
    double squares = 0;
    for (const Matrix& g : gradients_) squares += g.squaredNorm();
    result.grad_norm = std::sqrt(squares);
    const double limit = static_cast<double>(options_.max_grad_norm);
    adamw(std::min(1.0, limit / (result.grad_norm + 1e-6)));
    return result;
  }

  double weight(ParameterId id, size_t i) const { return weights_[id].data()[i]; }

 private:
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using FloatMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

  /// Returns the sum of the losses, and adds `scale` times its gradients.
  double add_gradients(const Batch& batch, double scale) {
    const size_t num_layers = kWidths.size() - 1;
    std::vector<Matrix> x = {
        Eigen::Map<const FloatMatrix>(batch.x.data(), kBatch, kWidths[0]).cast<double>()};
    for (size_t layer = 0; layer < num_layers; ++layer) {
      Matrix y = x[layer].lazyProduct(weights_[2 * layer].transpose());
      y.rowwise() += weights_[2 * layer + 1].row(0);
      x.push_back(layer + 1 < num_layers ? Matrix(y.cwiseMax(0)) : y);
    }
    const Matrix& logits = x.back();
    double loss = 0;
    Matrix dy = Matrix::Zero(kBatch, kWidths.back());
    for (int64_t row = 0; row < kBatch; ++row) {
      const int32_t label = batch.labels[static_cast<size_t>(row)];
      if (label == kIgnoredLabel) continue;
      const double log_sum = std::log(logits.row(row).array().exp().sum());
      loss += log_sum - logits(row, label);
      dy.row(row) = scale * (logits.row(row).array() - log_sum).exp();
      dy(row, label) -= scale;
    }
    for (size_t layer = num_layers; layer-- > 0;) {
      gradients_[2 * layer] += dy.transpose().lazyProduct(x[layer]);
      gradients_[2 * layer + 1] += dy.colwise().sum();
      const Matrix dx = dy.lazyProduct(weights_[2 * layer]);
      dy = (x[layer].array() > 0).select(dx, 0);  // of ReLU; the gradient of the input is not used
    }
    return loss;
  }

  void adamw(double gradient_scale) {
    const AdamW& a = options_.adam;
    ++t_;
    for (size_t id = 0; id < weights_.size(); ++id) {
      auto w = weights_[id].array(), m = momentum_[id].array(), v = variance_[id].array();
      const auto g = gradients_[id].array() * gradient_scale;
      m = a.beta1 * m + (1 - a.beta1) * g;
      v = a.beta2 * v + (1 - a.beta2) * g.square();
      const bool is_weight = id % 2 == 0;
      if (is_weight) w *= 1 - kLearningRate * a.weight_decay;
      w -= kLearningRate * m / (1 - std::pow(a.beta1, t_)) /
           ((v / (1 - std::pow(a.beta2, t_))).sqrt() + a.epsilon);
    }
  }

  TrainerOptions options_;
  std::vector<Matrix> weights_, gradients_, momentum_, variance_;
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
    batch.labels.push_back(n % 5 == 4 ? kIgnoredLabel : static_cast<int32_t>(n % kWidths.back()));
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
    const auto ignored = std::count(b.labels.begin(), b.labels.end(), kIgnoredLabel);
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
  const Preparation prepared = prepare(model, of_trainer, {.device = {.num_threads = 1}});
  const auto device = create_device({.profile = {.num_threads = 1}, .poison = true});
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
        compare(static_cast<double>(values[i]), reference.weight(id, i), 0.25);
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

TEST(Mlp, TrainsLikeTheReferenceInFp64) {
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

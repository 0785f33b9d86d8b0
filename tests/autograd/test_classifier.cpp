// The classifier in slices of the vocabulary gives the same losses and gradients as in one piece.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <tuple>

#include "autograd/primitives.h"
#include "device/device.h"
#include "device/random.h"

namespace ebb::tests_of_classifier {
namespace {

// ---- The size of slices ------------------------------------------------------------------------

TEST(ClassifierCut, SmallHeadsAreNotSliced) {
  const ClassifierCut cut;
  EXPECT_EQ(cut.weight_rows(50257, 768), 50257);
  EXPECT_EQ(cut.weight_rows(50257, 1280), 50257);
  EXPECT_EQ(cut.weight_rows(256, 12288), 256);
}

TEST(ClassifierCut, LargeHeadsHaveEqualSlices) {
  const ClassifierCut cut;
  EXPECT_EQ(cut.weight_rows(131072, 8192), 8192);
  EXPECT_EQ(cut.weight_rows(50257, 1600), 25152);  // half, in multiples of 64
  for (const int64_t channels : {1600, 5120, 12288, 1 << 20, 1 << 27}) {
    const int64_t rows = cut.weight_rows(128256, channels);
    EXPECT_TRUE(rows * channels <= cut.weight_elements || rows == 1) << channels;
    EXPECT_GE(rows, 1);
  }
}

// ---- Losses and gradients ----------------------------------------------------------------------

constexpr int64_t kRows = 37, kChannels = 24, kClasses = 201;
/// Slices of 20 rows of the weight and 7 rows of logits. Neither divides the size.
constexpr ClassifierCut kSliced{.weight_elements = 20 * kChannels,
                                .logits = {.most_elements = 20 * 7}};
constexpr int64_t kSlices = 11;
constexpr ClassifierCut kWhole{};

std::vector<double> random_numbers(int64_t n, uint64_t seed, double range) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) {
    const auto words = philox4x32(static_cast<uint64_t>(i), 0, seed);
    values.push_back(range * (2.0 * static_cast<double>(words[0]) / 4294967296.0 - 1));
  }
  return values;
}

void store(const std::vector<double>& values, const Tensor& to) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (to.dtype == DType::BF16) {
      to.as<BF16>()[i] = BF16(static_cast<float>(values[i]));
    } else {
      to.as<float>()[i] = static_cast<float>(values[i]);
    }
  }
}

std::vector<double> load(const Tensor& from) {
  std::vector<double> values;
  for (int64_t i = 0; i < from.num_elements(); ++i) {
    values.push_back(static_cast<double>(
        from.dtype == DType::BF16 ? static_cast<float>(from.as<BF16>()[i]) : from.as<float>()[i]));
  }
  return values;
}

constexpr ParameterId kWeight = 0, kBias = 1;

/// A weight with the gradient sums of its uses, and a bias that is used once, in plain memory.
/// Records the calls.
class PlainHooks : public Hooks {
 public:
  PlainHooks(Tensor weight, std::vector<Tensor> sums, Tensor bias, Tensor bias_sums)
      : weight_(weight), sums_(std::move(sums)), bias_(bias), bias_sums_(bias_sums) {}
  void begin_call(std::string_view name, Phase phase, std::span<const ParameterUse> uses) override {
    std::string line = fmt::format("{} {}", name_of(phase), name);
    for (const ParameterUse& use : uses) {
      line += fmt::format(" {}{}.{} from {}", use.gradient ? "g" : "", use.parameter, use.use,
                          use.rows.first);
    }
    calls.push_back(line);
  }
  Tensor weight(const ParameterUse& use) override {
    return use.rows.of(use.parameter == kBias ? bias_ : weight_);
  }
  GradientTarget gradient(const ParameterUse& use) override {
    bool& again = written_[{use.parameter, use.use, use.rows.first}];
    const Tensor& sums = use.parameter == kBias ? bias_sums_ : sums_[use.use];
    return {use.rows.of(sums), std::exchange(again, true) ? Write::Add : Write::Store};
  }
  void end_call() override {}

  std::vector<std::string> calls;

 private:
  const Tensor weight_;
  const std::vector<Tensor> sums_;
  const Tensor bias_, bias_sums_;
  std::map<std::tuple<ParameterId, uint32_t, int64_t>, bool> written_;
};

/// y = x. The backward copies the gradient to dx for the test.
Variable source(Tape& tape, Tensor x, Tensor dx) {
  tape.begin_call("source", {});
  const Variable y = tape.output(x.shape, x.dtype);
  tape.end_call(
      [x, y](const Forward& f) {
        f.stream().copy(f.value(y).data, x.data, x.bytes(), CopyKind::Within);
      },
      [y, dx](const Backward& b) {
        b.stream().copy(dx.data, b.gradient(y).data, dx.bytes(), CopyKind::Within);
      });
  return y;
}

struct Head {
  std::vector<double> x, w;
  std::vector<int32_t> targets;
  std::vector<double> bias = {};  // empty: no bias
};

Head make_head(double range = 0.8) {
  Head head{random_numbers(kRows * kChannels, 1, range),
            random_numbers(kClasses * kChannels, 2, range),
            {}};
  for (int64_t i = 0; i < kRows; ++i) {
    head.targets.push_back(i % 7 == 3 ? -100 : static_cast<int32_t>(i * 53 % kClasses));
  }
  return head;
}

struct Outcome {
  double loss = 0;
  std::vector<double> dx, dw;  // of the first use
  std::vector<double> dbias = {};
  std::vector<std::string> calls;
};

struct Run {
  DType dtype = DType::F32;
  ClassifierCut cut = kSliced;
  bool training = true;
  int num_losses = 1;  ///< heads over the same x and weight
  uint32_t num_micro_batches = 1;
};

constexpr float kScale = 0.25f;

Outcome run_head(const Head& head, const Run& run) {
  const auto device = create_device({.profile = {.num_threads = 2}});
  device->reserve_workspace(size_t{32} << 20);
  std::vector<Buffer> buffers;
  const auto tensor = [&](DType dtype, Shape shape) {
    const size_t bytes = static_cast<size_t>(shape.num_elements()) * size_of(dtype);
    buffers.push_back(device->allocate(MemoryKind::Device, bytes, "test"));
    return Tensor{buffers.back().data(), dtype, shape};
  };
  const Tensor x = tensor(run.dtype, {1, kRows, kChannels});
  const Tensor dx = tensor(run.dtype, {1, kRows, kChannels});
  const Tensor w = tensor(run.dtype, {kClasses, kChannels});
  const Tensor targets = tensor(DType::I32, {1, kRows}),
               totals = tensor(DType::F64, {run.num_micro_batches});
  std::vector<Tensor> sums;
  for (int i = 0; i < run.num_losses; ++i) sums.push_back(tensor(DType::F32, w.shape));
  const Tensor bias = tensor(run.dtype, {kClasses}), dbias = tensor(DType::F32, {kClasses});
  store(head.bias, bias);
  store(head.x, x);
  store(head.w, w);
  std::memcpy(targets.data, head.targets.data(), targets.bytes());

  Buffer memory = device->allocate(MemoryKind::Device, size_t{4} << 20, "arena");
  Arena arena(memory.data(), memory.bytes());
  PlainHooks hooks(w, sums, bias, dbias);
  const auto compute = device->create_stream(StreamKind::Compute);
  Tape tape(*device, *compute, hooks, arena);
  for (uint32_t k = 0; k < run.num_micro_batches; ++k) {
    const Tensor total{totals.data + k * sizeof(double), DType::F64, {1}};
    tape.begin_micro_batch({.training = run.training}, total, kScale);
    const Variable y = source(tape, x, dx);
    for (int i = 0; i < run.num_losses; ++i) {
      classifier_cross_entropy(tape, y, kWeight, kClasses, targets, run.cut,
                               head.bias.empty() ? std::nullopt : std::optional(kBias));
    }
    tape.begin_backward();
    tape.backward_of_part();
    tape.end_micro_batch();
  }
  EXPECT_EQ(arena.live_bytes(), 0u);
  compute->synchronize();
  return {.loss = std::accumulate(totals.as<double>(), totals.as<double>() + run.num_micro_batches,
                                  0.0),
          .dx = load(dx),
          .dw = load(sums[0]),
          .dbias = head.bias.empty() ? std::vector<double>{} : load(dbias),
          .calls = std::move(hooks.calls)};
}

/// The definition in fp64.
Outcome reference(const Head& head) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Row = Eigen::RowVectorXd;
  const Eigen::Map<const Matrix> x(head.x.data(), kRows, kChannels);
  const Eigen::Map<const Matrix> w(head.w.data(), kClasses, kChannels);
  Outcome r{.dx = std::vector<double>(head.x.size()),
            .dw = std::vector<double>(head.w.size()),
            .dbias = std::vector<double>(head.bias.size()),
            .calls = {}};
  Matrix logits = x.lazyProduct(w.transpose());
  if (!head.bias.empty()) logits.rowwise() += Eigen::Map<const Row>(head.bias.data(), kClasses);
  Matrix dlogits = Matrix::Zero(kRows, kClasses);
  for (int64_t i = 0; i < kRows; ++i) {
    const int32_t target = head.targets[static_cast<size_t>(i)];
    if (target < 0) continue;
    const double log_sum = std::log(logits.row(i).array().exp().sum());
    r.loss += log_sum - logits(i, target);
    dlogits.row(i) = (logits.row(i).array() - log_sum).exp();
    dlogits(i, target) -= 1;
  }
  dlogits *= static_cast<double>(kScale);
  Eigen::Map<Matrix>(r.dx.data(), kRows, kChannels) = dlogits.lazyProduct(w);
  Eigen::Map<Matrix>(r.dw.data(), kClasses, kChannels) = dlogits.transpose().lazyProduct(x);
  if (!head.bias.empty()) {
    Eigen::Map<Row>(r.dbias.data(), kClasses) = dlogits.colwise().sum();
  }
  return r;
}

/// Whether each difference is at most `relative` times the largest value.
testing::AssertionResult near(const std::vector<double>& got, const std::vector<double>& want,
                              double relative) {
  double most = 0, worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    most = std::max(most, std::abs(want[i]));
    worst = std::max(worst, std::abs(got[i] - want[i]));
  }
  if (got.size() == want.size() && most > 0 && worst <= relative * most) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "differs by " << worst / most << " of the largest value";
}

TEST(SlicedClassifier, EqualsTheDefinition) {
  const Head head = make_head();
  const Outcome want = reference(head);
  const Outcome got = run_head(head, {});
  EXPECT_NEAR(got.loss, want.loss, 1e-6 * want.loss);
  EXPECT_TRUE(near(got.dx, want.dx, 1e-6));
  EXPECT_TRUE(near(got.dw, want.dw, 1e-6));
  // The comparison must find a slice whose gradient is missing, and one that is added twice.
  std::vector<double> missing = got.dw, twice = got.dw;
  for (size_t i = 40 * kChannels; i < 60 * kChannels; ++i) missing[i] = 0, twice[i] *= 2;
  EXPECT_FALSE(near(missing, want.dw, 1e-6));
  EXPECT_FALSE(near(twice, want.dw, 1e-6));
}

TEST(SlicedClassifier, ABiasIsSlicedWithTheWeight) {
  Head head = make_head();
  head.bias = random_numbers(kClasses, 3, 2.0);
  const Outcome want = reference(head);
  for (const ClassifierCut& cut : {kWhole, kSliced}) {
    const Outcome got = run_head(head, {.cut = cut});
    EXPECT_NEAR(got.loss, want.loss, 1e-6 * want.loss);
    EXPECT_TRUE(near(got.dx, want.dx, 1e-6));
    EXPECT_TRUE(near(got.dw, want.dw, 1e-6));
    EXPECT_TRUE(near(got.dbias, want.dbias, 1e-6));
    std::vector<double> shifted = got.dbias;  // the comparison must find the rows of another slice
    std::rotate(shifted.begin(), shifted.begin() + 20, shifted.end());
    EXPECT_FALSE(near(shifted, want.dbias, 1e-6));
  }
  const Outcome twice = run_head(head, {.num_micro_batches = 2});
  std::vector<double> doubled = want.dbias;
  for (double& v : doubled) v *= 2;
  EXPECT_TRUE(near(twice.dbias, doubled, 1e-6));
}

TEST(SlicedClassifier, EqualsTheHeadInOneCallExceptForRounding) {
  const Head head = make_head();
  for (const uint32_t k : {1u, 2u}) {
    const Outcome whole = run_head(head, {.cut = kWhole, .num_micro_batches = k});
    const Outcome sliced = run_head(head, {.num_micro_batches = k});
    EXPECT_NEAR(sliced.loss, whole.loss, 1e-6 * whole.loss);
    EXPECT_TRUE(near(sliced.dx, whole.dx, 1e-6));
    EXPECT_TRUE(near(sliced.dw, whole.dw, 1e-6));
  }
}

/// Logits and their gradients are bf16 with and without slices. The gradient of x is rounded once,
/// not after each slice: sums in bf16 would have an error of about 2^-8 of the largest value.
TEST(SlicedClassifier, InBf16SlicesAddNoRounding) {
  const Head head = make_head();
  const Outcome whole = run_head(head, {.dtype = DType::BF16, .cut = kWhole});
  const Outcome sliced = run_head(head, {.dtype = DType::BF16});
  EXPECT_NEAR(sliced.loss, whole.loss, 1e-5 * whole.loss);
  EXPECT_TRUE(near(sliced.dx, whole.dx, 1.0 / 256));
  EXPECT_TRUE(near(sliced.dw, whole.dw, 1.0 / 512));
  double squares = 0, size = 0;
  for (size_t i = 0; i < whole.dx.size(); ++i) {
    squares += (sliced.dx[i] - whole.dx[i]) * (sliced.dx[i] - whole.dx[i]);
    size += whole.dx[i] * whole.dx[i];
  }
  EXPECT_LT(std::sqrt(squares / size), 1e-3);
}

TEST(SlicedClassifier, GradientsAreTheDerivativeOfTheLoss) {
  const Head head = make_head();
  const Outcome at = run_head(head, {});
  const auto slope = [&](std::vector<double> Head::*field, const std::vector<double>& direction) {
    constexpr double h = 3e-3;
    Head up = head, down = head;
    for (size_t i = 0; i < direction.size(); ++i) {
      (up.*field)[i] += h * direction[i];
      (down.*field)[i] -= h * direction[i];
    }
    return static_cast<double>(kScale) * (run_head(up, {}).loss - run_head(down, {}).loss) /
           (2 * h);
  };
  const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  };
  for (const uint64_t seed : {5u, 6u}) {
    const auto to_x = random_numbers(kRows * kChannels, seed, 1);
    const auto to_w = random_numbers(kClasses * kChannels, seed, 1);
    EXPECT_NEAR(slope(&Head::x, to_x), dot(at.dx, to_x), 2e-3 * std::abs(dot(at.dx, to_x)) + 1e-3);
    EXPECT_NEAR(slope(&Head::w, to_w), dot(at.dw, to_w), 2e-3 * std::abs(dot(at.dw, to_w)) + 1e-3);
  }
}

TEST(SlicedClassifier, TwoHeadsOfOneValueAddTheirGradients) {
  const Head head = make_head();
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const Outcome one = run_head(head, {.dtype = dtype});
    const Outcome two = run_head(head, {.dtype = dtype, .num_losses = 2});
    std::vector<double> twice = one.dx;
    for (double& v : twice) v *= 2;
    EXPECT_EQ(two.loss, 2 * one.loss);
    EXPECT_TRUE(near(two.dx, twice, dtype == DType::F32 ? 1e-6 : 1e-12));
    EXPECT_EQ(two.dw, one.dw);
  }
}

TEST(SlicedClassifier, HasAForwardAndABackwardCallForEachSlice) {
  std::vector<std::string> want = {"forward source"};
  for (int64_t i = 0; i < kSlices; ++i) {
    want.push_back(fmt::format("forward classifier logits 0.0 from {}", 20 * i));
  }
  for (int64_t i = kSlices; i-- > 0;) {
    want.push_back(fmt::format("backward classifier gradient g0.0 from {}", 20 * i));
  }
  want.push_back("backward source");
  EXPECT_EQ(run_head(make_head(), {}).calls, want);
}

TEST(SlicedClassifier, AnEvaluationHasTheSameLoss) {
  const Head head = make_head();
  const Outcome got = run_head(head, {.training = false});
  EXPECT_EQ(got.loss, run_head(head, {}).loss);
  EXPECT_EQ(got.calls.size(), static_cast<size_t>(1 + kSlices));
}

}  // namespace
}  // namespace ebb::tests_of_classifier

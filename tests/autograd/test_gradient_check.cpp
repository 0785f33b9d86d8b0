// The gradient check accepts primitives whose backward is right, and finds planted mistakes.
#include <gtest/gtest.h>

#include <functional>

#include "autograd/gradient_check.h"
#include "autograd/primitives.h"
#include "device/kernels.h"
#include "device/random.h"

namespace ebb::tests_of_gradient_check {
namespace {

constexpr int64_t kRows = 6, kChannels = 8;
/// The weight of the second layer of BodyModel; a body may use it again.
constexpr ParameterId kLayer = 3;

/// A linear layer, layers of the body under test, and the mean squared error.
class BodyModel : public Model {
 public:
  using Body = std::function<Variable(Tape&, Variable)>;

  explicit BodyModel(Body body, int64_t result_columns = kChannels)
      : body_(std::move(body)), result_columns_(result_columns) {
    for (ParameterId& w : layers_) w = parameters_.add("layer", shape(), Init::normal(0.3f));
  }
  const Parameters& parameters() const override { return parameters_; }
  std::vector<InputSpec> inputs() const override {
    return {{"x", {kRows, kChannels}, DType::F32},
            {"targets", {kRows, result_columns_}, DType::F32}};
  }
  Variable begin(Tape& tape, std::span<const Tensor> inputs) const override {
    return linear(tape, {.value = inputs[0]}, in_, bias_);
  }
  uint32_t num_layers() const override { return 2; }
  Variable layer(Tape& tape, std::span<const Tensor>, uint32_t i, Variable x) const override {
    return i == 0 ? linear(tape, x, layers_[0]) : body_(tape, linear(tape, x, layers_[1]));
  }
  void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const override {
    mean_squared_error(tape, x, inputs[1]);
  }

 private:
  static Shape shape() { return {kChannels, kChannels}; }

  Body body_;
  int64_t result_columns_;
  Parameters parameters_;
  ParameterId in_ = parameters_.add("in", shape(), Init::normal(0.3f));
  ParameterId bias_ = parameters_.add("bias", {kChannels}, Init::zeros());
  ParameterId layers_[2];
};

std::vector<float> random_floats(int64_t n, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(2 * uniform(philox4x32(i, 0, seed)[0]) - 1);
  }
  return values;
}

GradientCheck check(const BodyModel& model, const GradientCheckOptions& options = {}) {
  std::vector<std::vector<float>> values;
  std::vector<Tensor> inputs;
  for (const InputSpec& spec : model.inputs()) {
    values.push_back(random_floats(spec.shape.num_elements(), values.size() + 1));
    inputs.push_back({reinterpret_cast<std::byte*>(values.back().data()), spec.dtype, spec.shape});
  }
  return check_gradients(model, inputs, options);
}

/// y = x * x, or what a mistake makes of its backward.
Variable square(Tape& tape, Variable x, float factor_of_gradient) {
  tape.begin_call("square", {});
  const Variable y = tape.output(x.value.shape, x.value.dtype);
  tape.end_call(
      [=](const Forward& f) {
        f.submit(Multiply{f.value(y), f.value(x), f.value(x), Write::Store});
      },
      [=](const Backward& b) {
        // The sum of `factor_of_gradient` products; 2 is right.
        for (float f = 0; f < factor_of_gradient; ++f) {
          const GradientTarget dx = b.input_gradient(x);
          b.submit(Multiply{dx.sums, b.gradient(y), b.value(x), dx.write});
        }
      });
  return y;
}

/// y = or += factor * x
struct Scale {
  Tensor y, x;
  float factor;
  Write write;

  Cost check() const { return {.flops = 1, .bytes = 1, .name = "scale"}; }
  void run(ThreadTeam&) const {
    for (int64_t i = 0; i < x.num_elements(); ++i) {
      float& to = y.as<float>()[i];
      to = (write == Write::Add ? to : 0) + factor * x.as<float>()[i];
    }
  }
};

/// y = x; the gradient is `factor` times the right one.
Variable with_scaled_gradient(Tape& tape, Variable x, float factor) {
  tape.begin_call("copy", {});
  const Variable y = tape.output(x.value.shape, x.value.dtype);
  tape.end_call(
      [=](const Forward& f) {
        f.submit(Scale{f.value(y), f.value(x), 1, Write::Store});
      },
      [=](const Backward& b) {
        const GradientTarget dx = b.input_gradient(x);
        b.submit(Scale{dx.sums, b.gradient(y), factor, dx.write});
      });
  return y;
}

TEST(GradientCheck, AcceptsEachPrimitive) {
  const struct {
    const char* name;
    BodyModel model;
  } cases[] = {
      {"multiply", BodyModel([](Tape& t, Variable x) {
         return multiply(t, x, activation(t, x, Activation::Gelu));
       })},
      {"multiply by itself", BodyModel([](Tape& t, Variable x) { return multiply(t, x, x); })},
      {"softmax", BodyModel([](Tape& t, Variable x) { return softmax(t, x); })},
      {"softmax, used twice",
       BodyModel([](Tape& t, Variable x) { return add(t, x, softmax(t, x)); })},
      {"concatenate", BodyModel(
                          [](Tape& t, Variable x) {
                            const Variable y = activation(t, x, Activation::GeluTanh);
                            return concatenate(t, {x, y, multiply(t, x, y), x});
                          },
                          4 * kChannels)},
      {"concatenate one part", BodyModel([](Tape& t, Variable x) { return concatenate(t, {x}); })},
      {"relu, which has a kink",
       BodyModel([](Tape& t, Variable x) { return activation(t, x, Activation::Relu); })},
      {"square", BodyModel([](Tape& t, Variable x) { return square(t, x, 2); })},
      {"linear with a residual", BodyModel([](Tape& t, Variable x) {
         return linear(t, activation(t, x, Activation::Gelu), kLayer, {}, x);
       })},
      {"linear with its input as the residual",
       BodyModel([](Tape& t, Variable x) { return linear(t, x, kLayer, {}, x); })},
      {"linear of an activation, with a residual", BodyModel([](Tape& t, Variable x) {
         const Activated a = linear_activation(t, x, kLayer, {}, Activation::Gelu);
         return activation_linear(t, a, kLayer, {}, x);
       })},
  };
  for (const auto& c : cases) {
    const GradientCheck result = check(c.model, {.elements_per_parameter = 64});
    EXPECT_TRUE(result.passed()) << c.name << ": " << result.message();
    EXPECT_TRUE(result.too_small.empty()) << c.name << ": " << result.message();
    EXPECT_EQ(result.num_elements, 3 * 64 + kChannels);
  }
}

TEST(GradientCheck, FindsAPlantedMistake) {
  const auto wrong = check(BodyModel([](Tape& t, Variable x) { return square(t, x, 1); }));
  EXPECT_FALSE(wrong.passed());
  EXPECT_GT(wrong.num_wrong, wrong.num_elements / 2);
  EXPECT_NEAR(wrong.worst.gradient, wrong.worst.differences / 2,
              1e-3 * std::abs(wrong.worst.differences));
  EXPECT_NE(wrong.message().find("the worst is " + wrong.worst.name + ": the backward computes"),
            std::string::npos)
      << wrong.message();
  EXPECT_NE(wrong.worst.name.find('['), std::string::npos);
}

TEST(GradientCheck, FindsABackwardThatIsMissing) {
  const auto wrong = check(BodyModel([](Tape& t, Variable x) {
    return add(t, activation(t, x, Activation::Relu), square(t, x, 0));
  }));
  EXPECT_FALSE(wrong.passed());
}

TEST(GradientCheck, FindsAnErrorOfOnePercent) {
  const auto model = [](float factor) {
    return BodyModel([factor](Tape& t, Variable x) {
      return activation(t, with_scaled_gradient(t, x, factor), Activation::Gelu);
    });
  };
  EXPECT_TRUE(check(model(1)).passed());
  const auto wrong = check(model(1.01f));
  EXPECT_GT(wrong.num_wrong, wrong.num_elements / 2) << wrong.message();
  EXPECT_TRUE(check(model(1.01f), {.tolerance = 0.1}).passed());
}

TEST(GradientCheck, RefusesWhatItCannotCheck) {
  const BodyModel model([](Tape& t, Variable x) { return softmax(t, x); });
  std::vector<float> x(kRows * kChannels), wide(kRows * 9);
  const Tensor good{reinterpret_cast<std::byte*>(x.data()), DType::F32, {kRows, kChannels}};
  const Tensor bad{reinterpret_cast<std::byte*>(wide.data()), DType::F32, {kRows, 9}};
  const auto message_of = [&](std::vector<Tensor> inputs, const GradientCheckOptions& options) {
    try {
      check_gradients(model, inputs, options);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message_of({good}, {}), "a gradient check needs the 2 inputs of the model, not 1");
  EXPECT_EQ(message_of({good, bad}, {}), "input 'targets' is (6, 8) fp32, not (6, 9) fp32");
  EXPECT_NE(message_of({good, good}, {.step = 0}), "");
  EXPECT_EQ(message_of({good, good}, {}), "");
  x[3] = std::nanf("");
  EXPECT_EQ(message_of({good, good}, {}),
            "the loss of the model is nan; a gradient check needs inputs with a finite loss");
}

}  // namespace
}  // namespace ebb::tests_of_gradient_check

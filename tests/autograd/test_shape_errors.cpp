// Messages about shapes name the sizes and the part of the model.
#include <gtest/gtest.h>

#include <functional>

#include "autograd/micro_batches.h"
#include "autograd/primitives.h"
#include "device/kernels.h"
#include "device/sim/sim_device.h"
#include "scheduler/search/trace_recorder.h"

namespace ebb::tests_of_shape_errors {
namespace {

constexpr int64_t kRows = 8, kWide = 128, kNarrow = 64;

enum class Where { Begin, Layer, Sum, End, BackwardOfLayer, BackwardOfEnd };

/// y = x. The backward submits a kernel whose shapes do not fit.
Variable wrong_backward(Tape& tape, Variable x) {
  tape.begin_call("wrong", {});
  const Variable y = tape.output(x.value.shape, x.value.dtype);
  tape.end_call(
      [=](const Forward& f) {
        f.submit(ActivationForward{f.value(y), f.value(x), Activation::Relu});
      },
      [=](const Backward& b) {
        const Tensor short_gradient = b.scratch({kRows, kNarrow}, x.value.dtype);
        b.submit(Add{b.input_gradient(x).sums, b.gradient(y), short_gradient});
      });
  return y;
}

/// Five layers. One part of the model has a mistake.
class WrongModel : public Model {
 public:
  explicit WrongModel(Where where) : where_(where) {}
  const Parameters& parameters() const override { return parameters_; }
  std::vector<InputSpec> inputs() const override {
    return {{"ids", {1, kRows}}, {"labels", {kRows}}};
  }
  Variable begin(Tape& tape, std::span<const Tensor> inputs) const override {
    const Variable x = embedding(tape, inputs[0], table_, kWide, DType::BF16);
    if (where_ == Where::Begin) multiply(tape, x, linear(tape, x, narrow_));
    return linear(tape, x, wide_);
  }
  uint32_t num_layers() const override { return 5; }
  Variable layer(Tape& tape, std::span<const Tensor>, uint32_t i, Variable x) const override {
    if (i == 3 && where_ == Where::Layer) return multiply(tape, x, linear(tape, x, narrow_));
    if (i == 3 && where_ == Where::Sum) return add(tape, x, linear(tape, x, narrow_));
    if (i == 3 && where_ == Where::BackwardOfLayer) x = wrong_backward(tape, x);
    return linear(tape, x, wide_);
  }
  void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const override {
    if (where_ == Where::BackwardOfEnd) x = wrong_backward(tape, x);
    if (where_ == Where::End) x = linear(tape, linear(tape, x, narrow_), wide_);
    cross_entropy(tape, linear(tape, x, narrow_), inputs[1]);
  }

 private:
  Where where_;
  Parameters parameters_;
  ParameterId table_ = parameters_.add("table", {20, kWide}, Init::zeros());
  ParameterId wide_ = parameters_.add("wide", {kWide, kWide}, Init::zeros());
  ParameterId narrow_ = parameters_.add("narrow", {kNarrow, kWide}, Init::zeros());
};

std::string message_of(const Model& model, const TapeOptions& options = {}) {
  SimDevice sim;
  const auto compute = sim.create_stream(StreamKind::Compute);
  TraceRecorder recorder(sim, model.parameters(), DType::BF16);
  std::byte* const base = recorder.arena().base();
  MicroBatches micro_batches(sim, *compute, recorder, recorder.arena(), 1);
  std::vector<Tensor> inputs;
  for (const InputSpec& spec : model.inputs()) inputs.push_back({base, spec.dtype, spec.shape});
  try {
    micro_batches.run(model, {.tape = options, .inputs = inputs, .losses = {base, DType::F64, {1}}},
                      [&](uint32_t k) { recorder.begin_micro_batch(k); });
  } catch (const ShapeError& error) {
    return error.what();
  }
  return "";
}

/// All layers run again.
const std::vector<LayerRecompute> kWhole(8, {.whole = true});

constexpr const char* kFactors =
    "multiply: factors of one shape and type, not (1, 8, 128) bf16 and (1, 8, 64) bf16";

TEST(ShapeErrors, OfAForwardNameTheLayerAndTheSizes) {
  EXPECT_EQ(message_of(WrongModel(Where::Layer)), std::string("layer 3: ") + kFactors);
  EXPECT_EQ(message_of(WrongModel(Where::Layer), {.training = false}),
            std::string("layer 3: ") + kFactors);
  EXPECT_EQ(message_of(WrongModel(Where::Layer), {.layers = kWhole}),
            std::string("layer 3: ") + kFactors);
}

TEST(ShapeErrors, TermsHaveOneShape) {
  EXPECT_EQ(message_of(WrongModel(Where::Sum)),
            "layer 3: add: terms of one shape and type, not (1, 8, 128) bf16 and (1, 8, 64) bf16");
}

TEST(ShapeErrors, OutsideOfLayersNameTheFunctionOfTheModel) {
  EXPECT_EQ(message_of(WrongModel(Where::Begin)), std::string("begin(): ") + kFactors);
  EXPECT_EQ(message_of(WrongModel(Where::End)),
            "end(): linear_forward: y (N, OC) = x (N, C) w (OC, C)^T, not y (1, 8, 128) bf16, "
            "x (1, 8, 64) bf16, w (128, 128) bf16");
}

/// Also where several layers are recomputed together: the group of layer 3 ends with layer 4.
TEST(ShapeErrors, OfABackwardNameTheLayerOfTheirForward) {
  const std::string add =
      "add: y, a and b of one float type and size, not y (1, 8, 128) bf16, a (1, 8, 128) bf16, "
      "b (8, 64) bf16";
  EXPECT_EQ(message_of(WrongModel(Where::BackwardOfLayer)), "layer 3: " + add);
  for (const uint32_t at_once : {1u, 2u, 5u}) {
    EXPECT_EQ(message_of(WrongModel(Where::BackwardOfLayer),
                         {.layers = kWhole, .layers_at_once = at_once}),
              "layer 3: " + add)
        << at_once;
  }
  EXPECT_EQ(message_of(WrongModel(Where::BackwardOfEnd)), "end(): " + add);
}

}  // namespace
}  // namespace ebb::tests_of_shape_errors

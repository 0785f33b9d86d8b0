// The order in which micro-batches run through the parts of a model.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "autograd/micro_batches.h"
#include "autograd/primitives.h"
#include "device/errors.h"
#include "device/sim/sim_device.h"
#include "scheduler/search/trace_recorder.h"

namespace ebb::tests_of_micro_batches {
namespace {

constexpr int64_t kRows = 4, kChannels = 8, kVocabulary = 20;

/// An embedding and a shared table, two layers that read the table, and a classifier in two slices.
class SmallModel : public Model {
 public:
  const Parameters& parameters() const override { return parameters_; }
  std::vector<InputSpec> inputs() const override { return {{"ids", {1, kRows}}}; }
  Variable begin(Tape& tape, std::span<const Tensor> inputs) const override {
    static const std::vector<double> frequencies(kChannels / 4, 0.5);
    tape.share(rotary_table(tape, inputs[0], frequencies, 1));
    return embedding(tape, inputs[0], table_, kChannels, DType::BF16);
  }
  uint32_t num_layers() const override { return 2; }
  Variable layer(Tape& tape, std::span<const Tensor>, uint32_t i, Variable x) const override {
    return rotary(tape, linear(tape, x, layers_[i]), tape.shared(0).value, 2);
  }
  void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const override {
    x = activation(tape, x, Activation::Relu);
    classifier_cross_entropy(
        tape, x, head_, kVocabulary, inputs[0],
        ClassifierCut{.weight_elements = 10 * kChannels, .logits = {.most_elements = 10 * kRows}});
  }

 private:
  Parameters parameters_;
  ParameterId table_ = parameters_.add("table", {kVocabulary, kChannels}, Init::zeros());
  ParameterId layers_[2] = {parameters_.add("layer", {kChannels, kChannels}, Init::zeros()),
                            parameters_.add("layer", {kChannels, kChannels}, Init::zeros())};
  ParameterId head_ = parameters_.add("head", {kVocabulary, kChannels}, Init::zeros());
};

struct Recorded {
  std::string calls;  // each with the number of its micro-batch
  size_t live_bytes = 0;
};

Recorded record(const Model& model, uint32_t together, uint32_t count,
                const TapeOptions& options = {}) {
  SimDevice sim;
  const auto compute = sim.create_stream(StreamKind::Compute);
  TraceRecorder recorder(sim, model.parameters(), DType::BF16);
  std::byte* const base = recorder.arena().base();
  MicroBatches micro_batches(sim, *compute, recorder, recorder.arena(), together);
  std::vector<Tensor> inputs;
  for (uint32_t k = 0; k < count; ++k) {
    for (const InputSpec& spec : model.inputs()) inputs.push_back({base, spec.dtype, spec.shape});
  }
  micro_batches.run(
      model, {.count = count, .tape = options, .inputs = inputs, .losses = {base, DType::F64, {1}}},
      [&](uint32_t k) { recorder.begin_micro_batch(k); });
  Recorded recorded{.calls = {}, .live_bytes = recorder.arena().live_bytes()};
  for (const Call& call : recorder.take().calls) {
    recorded.calls += fmt::format("{}{}{} ", call.phase == Phase::Backward ? "b:" : "", call.name,
                                  call.micro_batch);
  }
  return recorded;
}

using Parts = std::vector<std::vector<std::string>>;

/// The calls of some micro-batches, part by part.
std::string expected(const Parts& parts, std::vector<uint32_t> all) {
  std::string text;
  for (const auto& part : parts) {
    for (const uint32_t k : all) {
      for (const std::string& call : part) text += fmt::format("{}{} ", call, k);
    }
  }
  return text;
}

const Parts kForward = {{"rotary_table", "embedding"},
                        {"linear", "rotary"},
                        {"linear", "rotary"},
                        {"activation", "classifier logits"},
                        {"classifier logits"}};
const Parts kBackward = {{"b:classifier gradient"}, {"b:classifier gradient"}, {"b:activation"},
                         {"b:rotary", "b:linear"},  {"b:rotary", "b:linear"},  {"b:embedding"}};
const Parts kRecomputed = {{"b:classifier gradient"},
                           {"b:classifier gradient"},
                           {"b:activation"},
                           {"b:linear", "b:rotary", "b:rotary", "b:linear"},
                           {"b:linear", "b:rotary", "b:rotary", "b:linear"},
                           {"b:embedding"}};

TEST(MicroBatches, VerticalOrderRunsPartByPart) {
  const Recorded r = record(SmallModel(), 3, 3);
  EXPECT_EQ(r.calls, expected(kForward, {0, 1, 2}) + expected(kBackward, {0, 1, 2}));
  EXPECT_EQ(r.live_bytes, 0u);
}

TEST(MicroBatches, HorizontalOrderEndsOneMicroBatchBeforeTheNext) {
  const Recorded r = record(SmallModel(), 1, 2);
  EXPECT_EQ(r.calls, expected(kForward, {0}) + expected(kBackward, {0}) + expected(kForward, {1}) +
                         expected(kBackward, {1}));
  EXPECT_EQ(r.live_bytes, 0u);
}

TEST(MicroBatches, MayRunInGroups) {
  EXPECT_EQ(record(SmallModel(), 2, 3).calls,
            expected(kForward, {0, 1}) + expected(kBackward, {0, 1}) + expected(kForward, {2}) +
                expected(kBackward, {2}));
}

TEST(MicroBatches, RecomputationRunsALayerAgain) {
  const std::vector<LayerRecompute> whole(8, {.whole = true});
  for (const TapeOptions& options :
       {TapeOptions{.layers = whole}, TapeOptions{.layers = whole, .mark_idle = true}}) {
    const Recorded r = record(SmallModel(), 2, 2, options);
    EXPECT_EQ(r.calls, expected(kForward, {0, 1}) + expected(kRecomputed, {0, 1}));
    EXPECT_EQ(r.live_bytes, 0u);
  }
}

TEST(MicroBatches, AnEvaluationHasNoBackward) {
  const Recorded r = record(SmallModel(), 2, 2, {.training = false});
  EXPECT_EQ(r.calls, expected(kForward, {0, 1}));
  EXPECT_EQ(r.live_bytes, 0u);
}

/// A call after a classifier in stages runs after all its stages.
class CallAfterStages : public SmallModel {
 public:
  void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const override {
    SmallModel::end(tape, inputs, x);
    activation(tape, x, Activation::Relu);
  }
};

TEST(MicroBatches, ACallAfterStagesRunsAfterThem) {
  Parts forward(kForward.begin(), kForward.begin() + 3);
  forward.push_back({"activation", "classifier logits", "classifier logits",
                     "b:classifier gradient", "b:classifier gradient", "activation"});
  const Parts backward(kBackward.begin() + 2, kBackward.end());
  EXPECT_EQ(record(CallAfterStages(), 2, 2).calls,
            expected(forward, {0, 1}) + expected(backward, {0, 1}));
}

/// After the classifier, each micro-batch runs in the next of these numbers of stages.
class UnequalStages : public SmallModel {
 public:
  UnequalStages(uint32_t first, uint32_t second) : num_stages_{first, second} {}
  void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const override {
    SmallModel::end(tape, inputs, x);
    tape.run_in_stages(num_stages_[num_ends_++], [](uint32_t) {});
  }

 private:
  const uint32_t num_stages_[2];
  mutable uint32_t num_ends_ = 0;
};

TEST(MicroBatches, MustLeaveTheSameNumberOfStages) {
  EXPECT_THROW(record(UnequalStages(2, 3), 2, 2), LogicError);
  EXPECT_THROW(record(UnequalStages(3, 2), 2, 2), LogicError);
  EXPECT_NO_THROW(record(UnequalStages(3, 3), 2, 2));
  EXPECT_NO_THROW(record(UnequalStages(2, 3), 1, 2));
}

TEST(MicroBatches, HaveALimitedNumberOfTapes) {
  EXPECT_THROW(record(SmallModel(), 4097, 1), ConfigError);
}

TEST(MicroBatches, AModelMayHaveNoLayers) {
  class NoLayers : public Model {
   public:
    const Parameters& parameters() const override { return parameters_; }
    std::vector<InputSpec> inputs() const override {
      return {{"x", {kRows, kChannels}, DType::BF16}, {"labels", {kRows}}};
    }
    void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const override {
      cross_entropy(tape, linear(tape, x, weight_), inputs[1]);
    }

   private:
    Parameters parameters_;
    ParameterId weight_ = parameters_.add("w", {kVocabulary, kChannels}, Init::zeros());
  };
  EXPECT_EQ(record(NoLayers(), 2, 2).calls,
            "linear0 cross_entropy0 linear1 cross_entropy1 b:linear0 b:linear1 ");
}

}  // namespace
}  // namespace ebb::tests_of_micro_batches

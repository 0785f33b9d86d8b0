// A classifier that runs in slices of the vocabulary has the same bits for every budget and
// schedule, both tied to the embedding, whose gradient sums are not sliced, and with a weight of
// its own.
#include <gtest/gtest.h>

#include "autograd/primitives.h"
#include "tests/trainer/cases.h"

namespace ebb::test {
namespace {

/// Embedding, two residual layers, and a head of 99 k parameters in five slices, the last of one
/// row. At the smallest chunk size no slice but the first begins at the start of a chunk.
class SlicedHead : public Model {
 public:
  static constexpr int64_t kVocabulary = 257, kChannels = 384;

  SlicedHead(DType dtype, bool tied, const ClassifierCut& cut) : dtype_(dtype), cut_(cut) {
    const Init normal = Init::normal(0.05f);
    wte_ = parameters_.add("wte", {kVocabulary, kChannels}, normal);
    wpe_ = parameters_.add("wpe", {kLength, kChannels}, normal);
    for (ParameterId& w : layers_) w = parameters_.add("layer", {kChannels, kChannels}, normal);
    norm_ = parameters_.add("norm", {kChannels}, Init::ones());
    bias_ = parameters_.add("bias", {kChannels}, Init::zeros());
    head_ = tied ? wte_ : parameters_.add("head", {kVocabulary, kChannels}, normal);
  }
  const Parameters& parameters() const override { return parameters_; }
  std::vector<InputSpec> inputs() const override {
    const Shape shape{kMicroBatchSize, kLength};
    return {{"tokens", shape}, {"positions", shape}, {"targets", shape}};
  }
  Variable begin(Tape& tape, std::span<const Tensor> inputs) const override {
    return embedding(tape, inputs[0], inputs[1], wte_, wpe_, kChannels, dtype_);
  }
  uint32_t num_layers() const override { return static_cast<uint32_t>(layers_.size()); }
  Variable layer(Tape& tape, std::span<const Tensor>, uint32_t i, Variable x) const override {
    return add(tape, x, activation(tape, linear(tape, x, layers_[i]), Activation::GeluTanh));
  }
  void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const override {
    x = layer_norm(tape, x, norm_, bias_);
    classifier_cross_entropy(tape, x, head_, kVocabulary, inputs[2], cut_);
  }

 private:
  DType dtype_;
  ClassifierCut cut_;
  Parameters parameters_;
  ParameterId wte_, wpe_, norm_, bias_, head_;
  std::array<ParameterId, 2> layers_;
};

/// A slice has 64 rows of the weight. Logits are computed for 24 tokens at a time.
constexpr ClassifierCut kCut{.weight_elements = 64 * SlicedHead::kChannels + 100,
                             .logits = {.most_elements = 64 * 24}};

Result run(const Model& model, const TrainingCase& requested) {
  return train(model, prepare_case(model, requested), requested);
}

class SlicedHeadIdentity : public testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  SlicedHead model(const ClassifierCut& cut = kCut) const {
    return {dtype(), std::get<1>(GetParam()), cut};
  }
};
INSTANTIATE_TEST_SUITE_P(Heads, SlicedHeadIdentity,
                         testing::Combine(testing::Values(DType::F32, DType::BF16),
                                          testing::Bool()),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) ? "_tied" : "_alone");
                         });

TEST_P(SlicedHeadIdentity, HasTheSameBitsForEveryBudgetAndOrder) {
  const SlicedHead sliced = model();
  for (const bool clip : {false, true}) {
    const TrainingCase resident{.dtype = dtype(),
                                .clip = clip,
                                .accumulation = 2,
                                .num_pieces = 16,
                                .update = UpdateOrder::Wait,
                                .evaluation_batches = 2};
    const Result expected = run(sliced, resident);
    for (const MicroBatchOrder order : {MicroBatchOrder::Horizontal, MicroBatchOrder::Vertical}) {
      for (const Memory memory : {Memory::Smallest, Memory::Between}) {
        TrainingCase requested = resident;
        requested.memory = memory;
        requested.order = order;
        requested.update = UpdateOrder::Overlap;
        requested.num_pieces = memory == Memory::Smallest ? 1 : 2;
        requested.recompute = clip ? kRecomputeEach : kRecomputeNone;
        requested.activations = clip ? ActivationPlacement::Device : ActivationPlacement::Offload;
        requested.num_threads = 2;
        SCOPED_TRACE(to_string(requested));
        const Result got = run(sliced, requested);
        EXPECT_TRUE(got.outcome == expected.outcome) << to_string(got.outcome) << "\nexpected\n"
                                                     << to_string(expected.outcome);
        EXPECT_GT(got.loaded_bytes, expected.loaded_bytes);
      }
    }
  }
}

TEST_P(SlicedHeadIdentity, AgreesWithTheUnslicedHeadUpToRounding) {
  const TrainingCase requested{.dtype = dtype(), .clip = false, .accumulation = 2, .num_steps = 1};
  const Outcome whole = run(model(ClassifierCut{}), requested).outcome;
  const Outcome sliced = run(model(), requested).outcome;
  const double relative = dtype() == DType::F32 ? 1e-6 : 1e-4;
  EXPECT_NEAR(sliced.losses[0], whole.losses[0], relative * whole.losses[0]);
  EXPECT_NEAR(sliced.norms[0], whole.norms[0], relative * whole.norms[0]);
  EXPECT_NE(sliced.hash, whole.hash);  // it ran in slices
}

/// Planted: a gradient sum of a slice is not loaded again, which changes the bits.
TEST(SlicedHeadPlanted, ALostSliceOfASumIsFound) {
  const SlicedHead model(DType::BF16, false, kCut);
  const TrainingCase requested{.accumulation = 2, .memory = Memory::Smallest, .num_steps = 2};
  Preparation damaged = prepare_case(model, requested);
  const Outcome expected = train(model, damaged, requested).outcome;
  const Layout& layout = *damaged.layout;
  const auto head = static_cast<ParameterId>(layout.num_parameters() - 1);
  const ChunkRange sums = layout.chunks(Space::GradientSums, layout.sum_elements(head, 0, {}));
  size_t num_lost = 0;
  for (Op& op : damaged.plan.ops) {
    const bool loads_sum = op.kind == OpKind::Move && op.from == Tier::Host &&
                           op.chunk.space == Space::GradientSums && op.chunk.index >= sums.first &&
                           op.chunk.index < sums.last;
    if (loads_sum && num_lost++ == 0) op.from = Tier::None;
  }
  ASSERT_GT(num_lost, 0u);
  EXPECT_FALSE(train(model, damaged, requested).outcome == expected);
}

}  // namespace
}  // namespace ebb::test

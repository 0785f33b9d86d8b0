// A classifier that runs in slices of the vocabulary has the same bits for every budget and
// schedule, both tied to the embedding, whose gradient sums are not sliced, and with a weight of
// its own.
#include "tests/trainer/test_sliced_head.h"

#include <gtest/gtest.h>

namespace ebb::test {
namespace {

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

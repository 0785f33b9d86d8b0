// The order of micro-batches determines how many bytes are copied.
#include <gtest/gtest.h>

#include "tests/trainer/cases.h"

namespace ebb::test {
namespace {

constexpr uint32_t kMicroBatches = 4;

class MicroBatchTraffic : public testing::Test {
 protected:
  Preparation prepared(std::optional<MicroBatchOrder> order) const {
    // Enough device memory for a layer of the model, but not for the whole model.
    const Preparation all = prepare(model_, options(MicroBatchOrder::Horizontal), {});
    const size_t half = (all.smallest_device_bytes + all.full_device_bytes) / 2;
    return prepare(model_, options(order), {.device_memory = half});
  }
  static TrainerOptions options(std::optional<MicroBatchOrder> order) {
    const TrainingCase run{.accumulation = kMicroBatches, .recompute = kRecomputeEach};
    TrainerOptions options = run.options();
    options.schedule.micro_batch_order = order;
    return options;
  }
  /// Returns how often each chunk of weights is loaded.
  static std::vector<int> num_loads(const Preparation& p) {
    std::vector<int> loads(p.layout->num_chunks(), 0);
    for (const Op& op : p.plan.ops) {
      const bool load = op.kind == OpKind::Move && op.from == Tier::Host;
      if (load && op.chunk.space == Space::Weights) ++loads[op.chunk.index];
    }
    return loads;
  }

  const Gpt2 model_{small_gpt(), kMicroBatchSize, kLength, DType::BF16};
};

TEST_F(MicroBatchTraffic, VerticalOrderLoadsWeightsOncePerPass) {
  const Preparation p = prepared(MicroBatchOrder::Vertical);
  ASSERT_LT(p.num_blocks, p.full_blocks);
  const std::vector<int> loads = num_loads(p);
  // The tied embedding, in the first chunks, has two uses: the lookup and the classifier.
  const auto tied = p.layout->chunks(Space::Weights, 0, p.layout->num_elements(0));
  for (uint32_t c = 0; c < loads.size(); ++c) EXPECT_LE(loads[c], c < tied.last ? 3 : 2) << c;
}

TEST_F(MicroBatchTraffic, SumsOfVerticalOrderStayOnTheDevice) {
  EXPECT_FALSE(prepared(MicroBatchOrder::Horizontal).plan.stored_sums.empty());
  const Preparation vertical = prepared(MicroBatchOrder::Vertical);
  // Only sums of the tied embedding are stored, because its two uses are far apart.
  const uint64_t others = vertical.layout->num_elements(0);
  for (uint32_t c : vertical.plan.stored_sums) {
    const bool tied =
        c * vertical.layout->chunk_bytes() / sizeof(float) < others ||
        c >= vertical.layout
                 ->chunks(Space::GradientSums, vertical.layout->first_sum_element(0, 1), 1)
                 .first;
    EXPECT_TRUE(tied) << c;
  }
}

/// The limit on the calls of a step counts the calls of one micro-batch, also in vertical order.
TEST(ManyMicroBatches, MayRunInVerticalOrder) {
  const Gpt2 model(tiny_gpt(), kMicroBatchSize, 8, DType::BF16);
  TrainingCase run{.accumulation = 400, .order = MicroBatchOrder::Vertical};
  EXPECT_EQ(prepare(model, run.options(), {}).trace.calls.back().micro_batch, 399u);
}

TEST_F(MicroBatchTraffic, ThePlannerChoosesTheOrderThatMovesLess) {
  const Preparation chosen = prepared({});
  const auto moved = [](const Preparation& p) { return p.plan.loaded_bytes + p.plan.stored_bytes; };
  EXPECT_EQ(chosen.schedule.micro_batch_order, MicroBatchOrder::Vertical);
  EXPECT_LT(2 * moved(chosen), moved(prepared(MicroBatchOrder::Horizontal)));
  const Preparation resident = prepare(model_, options({}), {});
  EXPECT_EQ(resident.schedule.micro_batch_order, MicroBatchOrder::Horizontal);
}

}  // namespace
}  // namespace ebb::test

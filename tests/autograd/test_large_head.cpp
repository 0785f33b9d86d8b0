// What a large head needs of a device and moves, planned and not run; and which cuts are refused.
#include <gtest/gtest.h>

#include "autograd/primitives.h"
#include "scheduler/run/trainer.h"

namespace ebb {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

class LargeHead : public Model {
 public:
  explicit LargeHead(const ClassifierCut& cut = {}, bool has_bias = false) : cut_(cut) {
    if (has_bias) head_bias_ = parameters_.add("head_bias", {kVocabulary}, Init::zeros());
  }
  const Parameters& parameters() const override { return parameters_; }
  std::vector<InputSpec> inputs() const override {
    return {{"x", {1, 4096, kWidth}, DType::BF16}, {"targets", {1, 4096}, DType::I32}};
  }
  void forward(Tape& tape, std::span<const Tensor> inputs) const override {
    const Variable x = layer_norm(tape, {.value = inputs[0]}, norm_, bias_);
    classifier_cross_entropy(tape, x, head_, kVocabulary, inputs[1], cut_, head_bias_);
  }

 private:
  static constexpr int64_t kWidth = 8192, kVocabulary = 131072;
  const ClassifierCut cut_;
  Parameters parameters_;
  ParameterId norm_ = parameters_.add("norm", {kWidth}, Init::ones());
  ParameterId bias_ = parameters_.add("bias", {kWidth}, Init::zeros());
  ParameterId head_ = parameters_.add("head", {kVocabulary, kWidth}, Init::normal(0.02f));
  std::optional<ParameterId> head_bias_;
};

TrainerOptions options(MicroBatchOrder order, uint32_t num_micro_batches) {
  return {.micro_batch_order = order,
          .gradient_accumulation = num_micro_batches,
          .evaluation_batches = 1};
}

TEST(LargeHead, NeedsLessThanAGibibyteOfBlocks) {
  const TrainerOptions requested = options(MicroBatchOrder::Horizontal, 2);
  const Preparation p = prepare(LargeHead(), requested, {.num_threads = 2});
  EXPECT_LT(p.smallest_blocks * requested.chunk_bytes, kGiB);
  // What prepare() plans it also validates.
  const Preparation smallest =
      prepare(LargeHead(), requested, {.device_memory = p.smallest_device_bytes, .num_threads = 2});
  EXPECT_EQ(smallest.num_blocks, p.smallest_blocks);
  const ClassifierCut whole{.weight_elements = int64_t{1} << 40};
  const Preparation at_once = prepare(LargeHead(whole), requested, {.num_threads = 2});
  EXPECT_GT(at_once.smallest_blocks * requested.chunk_bytes, 6 * kGiB);
}

TEST(LargeHead, ABiasIsPlannedWithIt) {
  for (const MicroBatchOrder order : {MicroBatchOrder::Horizontal, MicroBatchOrder::Vertical}) {
    const LargeHead model({}, true);
    const size_t least =
        prepare(model, options(order, 2), {.num_threads = 2}).smallest_device_bytes;
    const Preparation p =
        prepare(model, options(order, 2), {.device_memory = least, .num_threads = 2});
    EXPECT_EQ(p.num_blocks, p.smallest_blocks);
  }
}

/// Micro-batches pass a large head slice by slice: its weights go up for the losses and for the
/// gradients, its sums come down as finished gradients alone.
TEST(LargeHead, MovesOnceAPassWhateverTheNumberOfMicroBatches) {
  for (const uint32_t k : {1u, 4u}) {
    const TrainerOptions requested = options(MicroBatchOrder::Vertical, k);
    const size_t least = prepare(LargeHead(), requested, {.num_threads = 2}).smallest_device_bytes;
    const Preparation p =
        prepare(LargeHead(), requested,
                {.device_memory = least + 4 * requested.chunk_bytes, .num_threads = 2});
    ASSERT_LT(p.num_blocks, p.full_blocks);
    std::vector<int> loads(p.layout->num_chunks(), 0);
    for (const Op& op : p.plan.ops) {
      const bool load = op.kind == OpKind::Move && op.from == Tier::Host;
      if (load && op.chunk.space == Space::Weights) ++loads[op.chunk.index];
    }
    for (size_t c = 0; c < loads.size(); ++c) EXPECT_LE(loads[c], 2) << k << ", chunk " << c;
    EXPECT_TRUE(p.plan.stored_sums.empty()) << k;
  }
}

// ---- Refusals
// -----------------------------------------------------------------------------------------------

/// Writes gradients of some rows only, or of rows that overlap.
class BadlyCut : public Model {
 public:
  explicit BadlyCut(std::vector<RowRange> cut) : cut_(std::move(cut)) {}
  const Parameters& parameters() const override { return parameters_; }
  std::vector<InputSpec> inputs() const override { return {{"x", {4, 8}, DType::BF16}}; }
  void forward(Tape& tape, std::span<const Tensor>) const override {
    for (size_t i = 0; i < cut_.size(); ++i) {
      tape.begin_loss_call("part", {{.parameter = weight_, .rows = cut_[i], .continues = i > 0}});
      tape.add_losses(tape.scratch({4}, DType::F32));
      tape.end_call();
    }
  }

 private:
  const std::vector<RowRange> cut_;
  Parameters parameters_;
  ParameterId weight_ = parameters_.add("cut", {64, 8}, Init::normal(1));
};

std::string refusal(const std::vector<RowRange>& cut) {
  try {
    prepare(BadlyCut(cut), {}, {.num_threads = 1});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(RowsOfAParameter, MustBeApartAndTogetherTheWhole) {
  EXPECT_EQ(refusal({{32, 32}, {0, 32}}), "no error");
  EXPECT_NE(refusal({{0, 32}, {40, 24}}).find("448 of its 512 elements"), std::string::npos)
      << refusal({{0, 32}, {40, 24}});
  EXPECT_NE(refusal({{0, 33}, {32, 32}}).find("rows 0 to 33 and in rows 32 to 64"),
            std::string::npos)
      << refusal({{0, 33}, {32, 32}});
  EXPECT_THROW(prepare(BadlyCut({{32, 33}}), {}, {.num_threads = 1}), LogicError);
}

}  // namespace
}  // namespace ebb

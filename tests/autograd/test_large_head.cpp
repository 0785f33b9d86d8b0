// The device memory that a large head needs, the chunks that it moves, and the invalid slices. The
// models are planned and not run.
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
  void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const override {
    x = layer_norm(tape, x, norm_, bias_);
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
  return {.gradient_accumulation = num_micro_batches,
          .evaluation_batches = 1,
          .schedule = {.micro_batch_order = order}};
}

TEST(LargeHead, NeedsLessThanAGibibyteOfBlocks) {
  const TrainerOptions requested = options(MicroBatchOrder::Horizontal, 2);
  const Preparation p = prepare(LargeHead(), requested, {.device = {.num_threads = 2}});
  EXPECT_LT(p.smallest_blocks * requested.chunk_bytes, kGiB);
  // prepare() validates its plan.
  const Preparation smallest =
      prepare(LargeHead(), requested,
              {.device_memory = p.smallest_device_bytes, .device = {.num_threads = 2}});
  EXPECT_EQ(smallest.num_blocks, p.smallest_blocks);
  const ClassifierCut whole{.weight_elements = int64_t{1} << 40};
  const Preparation at_once = prepare(LargeHead(whole), requested, {.device = {.num_threads = 2}});
  EXPECT_GT(at_once.smallest_blocks * requested.chunk_bytes, 6 * kGiB);
}

TEST(LargeHead, MayHaveABias) {
  for (const MicroBatchOrder order : {MicroBatchOrder::Horizontal, MicroBatchOrder::Vertical}) {
    const LargeHead model({}, true);
    const size_t least =
        prepare(model, options(order, 2), {.device = {.num_threads = 2}}).smallest_device_bytes;
    const Preparation p =
        prepare(model, options(order, 2), {.device_memory = least, .device = {.num_threads = 2}});
    EXPECT_EQ(p.num_blocks, p.smallest_blocks);
  }
}

/// In vertical order all micro-batches use a slice before the next one. The weights are loaded once
/// for the losses and once for the gradients, and no gradient sums are stored.
TEST(LargeHead, IsLoadedTwiceForAnyNumberOfMicroBatches) {
  for (const uint32_t k : {1u, 4u}) {
    const TrainerOptions requested = options(MicroBatchOrder::Vertical, k);
    const size_t least =
        prepare(LargeHead(), requested, {.device = {.num_threads = 2}}).smallest_device_bytes;
    const Preparation p =
        prepare(LargeHead(), requested,
                {.device_memory = least + 4 * requested.chunk_bytes, .device = {.num_threads = 2}});
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

// ---- Invalid slices ----------------------------------------------------------------------------

/// Computes gradients of some rows only, or of overlapping rows.
class WithRows : public Model {
 public:
  explicit WithRows(std::vector<RowRange> rows) : rows_(std::move(rows)) {}
  const Parameters& parameters() const override { return parameters_; }
  std::vector<InputSpec> inputs() const override { return {{"x", {4, 8}, DType::BF16}}; }
  void end(Tape& tape, std::span<const Tensor>, Variable) const override {
    for (size_t i = 0; i < rows_.size(); ++i) {
      tape.begin_loss_call("part", {{.parameter = weight_, .rows = rows_[i], .continues = i > 0}});
      tape.add_losses(tape.scratch({4}, DType::F32));
      tape.end_call();
    }
  }

 private:
  const std::vector<RowRange> rows_;
  Parameters parameters_;
  ParameterId weight_ = parameters_.add("cut", {64, 8}, Init::normal(1));
};

std::string error_of(const std::vector<RowRange>& rows) {
  try {
    prepare(WithRows(rows), {}, {.device = {.num_threads = 1}});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(RowsOfAParameter, MustNotOverlapAndMustCoverTheParameter) {
  EXPECT_EQ(error_of({{32, 32}, {0, 32}}), "no error");
  EXPECT_NE(error_of({{0, 32}, {40, 24}}).find("448 of its 512 elements"), std::string::npos)
      << error_of({{0, 32}, {40, 24}});
  EXPECT_NE(error_of({{0, 33}, {32, 32}}).find("rows 0 to 33 and in rows 32 to 64"),
            std::string::npos)
      << error_of({{0, 33}, {32, 32}});
  EXPECT_THROW(prepare(WithRows({{32, 33}}), {}, {.device = {.num_threads = 1}}), LogicError);
}

}  // namespace
}  // namespace ebb

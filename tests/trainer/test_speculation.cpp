// Speculative updates have the same bits as updates that wait for the norm, if clipping is active
// never, always, in some steps, or at a norm very close to the limit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "scheduler/plan/validate.h"
#include "tests/trainer/cases.h"
#include "tests/trainer/watchdog.h"

namespace ebb::test::tests_of_speculation {
namespace {

constexpr float kNever = 1e9f, kAlways = 1e-3f;
constexpr uint32_t kSteps = 8;

using BeforeStep = std::function<void(Trainer&, uint32_t)>;

Result train_with(TrainingCase run, UpdateOrder update, float max_norm,
                  const BeforeStep& before_step = {}) {
  run.update = update;
  run.max_norm = max_norm;
  run.num_steps = kSteps;
  const Gpt2 model(small_gpt(), kMicroBatchSize, kLength, run.dtype);
  return train(model, prepare_case(model, run), run, before_step);
}

/// Expects the same outcome with and without speculation. Returns the result with speculation.
Result compare(const TrainingCase& run, float max_norm, const BeforeStep& before_step = {}) {
  SCOPED_TRACE(to_string(run) + ", clipped to " + std::to_string(max_norm));
  const Result waits = train_with(run, UpdateOrder::Wait, max_norm, before_step);
  Result speculates = train_with(run, UpdateOrder::Speculate, max_norm, before_step);
  EXPECT_EQ(to_string(speculates.outcome), to_string(waits.outcome));
  return speculates;
}

uint32_t sum(const std::vector<uint32_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), 0u);
}

/// Returns the median norm of a run without clipping: some steps are below, some above.
float middle_norm(const TrainingCase& run) {
  std::vector<double> norms = train_with(run, UpdateOrder::Wait, kNever).outcome.norms;
  std::ranges::nth_element(norms, norms.begin() + kSteps / 2);
  return static_cast<float>(norms[kSteps / 2]);
}

std::vector<TrainingCase> all_cases() {
  return {
      {.memory = Memory::Smallest, .num_threads = 2},
      {.accumulation = 4},
      {.accumulation = 4, .memory = Memory::Smallest, .recompute = kRecomputeEach},
      {.accumulation = 2,
       .memory = Memory::Between,
       .num_threads = 2,
       .order = MicroBatchOrder::Vertical},
      {.dtype = DType::F32, .memory = Memory::Smallest},
      {.dtype = DType::F16, .accumulation = 2, .memory = Memory::Smallest, .num_threads = 2},
      {.memory = Memory::Smallest, .num_pieces = 2, .activations = ActivationPlacement::Offload},
      {.memory = Memory::Between, .between = Between::State},
      {.memory = Memory::Smallest, .evaluation_batches = 1}};
}

/// Under AddressSanitizer only the cases with two threads, because it is slow.
std::vector<TrainingCase> cases() {
  std::vector<TrainingCase> cases = all_cases();
#if defined(__SANITIZE_ADDRESS__)
  std::erase_if(cases, [](const TrainingCase& run) { return run.num_threads < 2; });
#endif
  return cases;
}

TEST(Speculation, NeverClipped) {
  const Watchdog watchdog;
  for (const TrainingCase& run : cases()) {
    const Result result = compare(run, kNever);
    EXPECT_GT(result.speculated[0], 0u) << run;
    EXPECT_GT(result.speculated[kSteps - 1], 0u) << run;
    EXPECT_EQ(sum(result.undone), 0u) << run;
  }
}

/// An update that is not yet made when the norm is known need not be speculative. Which updates
/// these are depends on timing.
TEST(Speculation, LateUpdatesNeedNotBeSpeculative) {
  const Watchdog watchdog;
  TrainingCase run = cases()[0];
  const uint32_t most = sum(compare(run, kNever).speculated);
  run.speculates_late = false;
  for (const float max_norm : {kNever, middle_norm(run)}) {
    EXPECT_LE(sum(compare(run, max_norm).speculated), most);
  }
}

TEST(Speculation, ClippedInSomeSteps) {
  const Watchdog watchdog;
  uint32_t num_made = 0, num_rolled_back = 0;
  for (const TrainingCase& run : cases()) {
    const Result result = compare(run, middle_norm(run));
    num_made += sum(result.speculated);
    num_rolled_back += sum(result.undone);
  }
  EXPECT_GT(num_rolled_back, 0u);
  EXPECT_GT(num_made, num_rolled_back);
}

TEST(Speculation, ClippedAlways) {
  const Watchdog watchdog;
  for (const TrainingCase& run : cases()) compare(run, kAlways);
}

TEST(Speculation, ClippedAtTheNorm) {
  const Watchdog watchdog;
  const TrainingCase run = cases()[0];
  const auto norm = static_cast<float>(train_with(run, UpdateOrder::Wait, kNever).outcome.norms[0]);
  for (const float max_norm : {std::nextafter(norm, 0.0f), norm, std::nextafter(norm, kNever)}) {
    compare(run, max_norm);
  }
}

/// In the first step one of the last gradients that are stored overflows: huge activations are
/// multiplied by weights of 0, so only the gradient of these weights overflows. In a later step,
/// with small moments, such large gradients would make every element an outlier.
class LateOverflow {
 public:
  LateOverflow(float huge, float last_scale) : huge_(huge), last_scale_(last_scale) {}

  void operator()(Trainer& trainer, uint32_t step) {
    if (step == 0) {
      in_ = trainer.read_parameter(kIn);
      out_ = trainer.read_parameter(kOut);
      last_ = trainer.read_parameter(kLast);
      std::vector<float> huge = in_;
      for (size_t i = 2 * huge.size() / 3; i < huge.size(); ++i) huge[i] *= huge_;
      trainer.write_parameter(kIn, huge);
      trainer.write_parameter(kOut, std::vector<float>(out_.size(), 0.0f));
      trainer.write_parameter(kLast, std::vector<float>(last_.size(), last_scale_));
    }
    if (step == 1) {
      trainer.write_parameter(kIn, in_);
      trainer.write_parameter(kOut, out_);
      trainer.write_parameter(kLast, last_);
    }
  }

 private:
  static constexpr std::string_view kIn = "h.0.attn.c_attn.weight", kOut = "h.0.attn.c_proj.weight",
                                    kLast = "ln_f.weight";
  float huge_, last_scale_;
  std::vector<float> in_, out_, last_;
};

void expect_undone_late(const Result& result) {
  EXPECT_TRUE(std::isfinite(result.outcome.losses[0]));
  EXPECT_FALSE(std::isfinite(result.outcome.norms[0]));
  EXPECT_GT(result.undone[0], 0u);
  EXPECT_EQ(result.undone[0], result.speculated[0]);
}

TEST(Speculation, AStepThatIsSkippedLate) {
  const Watchdog watchdog;
  expect_undone_late(compare(cases()[0], 1e30f, LateOverflow(1e38f, 1e6f)));
}

/// In fp16 a gradient overflows only because of the loss scale.
TEST(Speculation, AStepOfFp16ThatIsSkippedLate) {
  const Watchdog watchdog;
  for (const bool clip : {true, false}) {
    const TrainingCase run{.dtype = DType::F16, .clip = clip, .memory = Memory::Smallest};
    expect_undone_late(compare(run, kNever, LateOverflow(2e4f, 1)));
  }
}

/// Without clipping, updates wait only for the check whether the scaled gradients overflow.
TEST(Speculation, Fp16WithoutClipping) {
  const Watchdog watchdog;
  const TrainingCase run{.dtype = DType::F16, .clip = false, .num_threads = 2};
  const Result result = compare(run, 0);
  EXPECT_GT(*std::ranges::min_element(result.speculated), 0u);
  EXPECT_EQ(sum(result.undone), 0u);
}

/// A step whose gradients are not finite, after good steps.
TEST(Speculation, SkippedSteps) {
  const Watchdog watchdog;
  std::vector<float> saved;
  const auto spoil = [&](Trainer& trainer, uint32_t step) {
    if (step == 3) {
      saved = trainer.read_parameter("wpe.weight");
      std::vector<float> spoiled = saved;
      std::ranges::fill(spoiled, std::numeric_limits<float>::infinity());
      trainer.write_parameter("wpe.weight", spoiled);
    }
    if (step == 4) trainer.write_parameter("wpe.weight", saved);
  };
  for (const TrainingCase& run : cases()) compare(run, kNever, spoil);
}

/// After a step that is rolled back, the next step waits for the norm; after the second such step
/// the next two wait, then the next four. Of the first eight steps 0, 2 and 5 speculate.
TEST(Speculation, BacksOff) {
  // Below every norm, but above the partial norm without the gradient of the last chunk.
  const TrainingCase run = all_cases()[1];
  const auto norms = train_with(run, UpdateOrder::Wait, kNever).outcome.norms;
  const auto least = static_cast<float>(*std::ranges::min_element(norms));
  const Result result = compare(run, least * 0.98f);
  for (uint32_t step = 0; step < kSteps; ++step) {
    if (step != 0 && step != 2 && step != 5) {
      EXPECT_EQ(result.speculated[step], 0u) << step;
    }
    EXPECT_EQ(result.undone[step], result.speculated[step]) << step;
  }
}

/// Undo logs use the host memory that is left. Without memory for logs nothing is speculative.
TEST(Speculation, WithLessMemoryOnFewerChunks) {
  const Gpt2 model(small_gpt(), kMicroBatchSize, kLength, DType::BF16);
  TrainerOptions options = all_cases()[1].options();
  options.schedule.update = UpdateOrder::Overlap;
  const size_t overlap = prepare(model, options, {}).ledger.total(Tier::Host);
  options.schedule.update = UpdateOrder::Speculate;
  const Preparation roomy = prepare(model, options, {});
  const auto all = roomy.plan.count(&ChunkRecord::is_speculative);
  const size_t of_logs = roomy.ledger.bytes("undo logs", Tier::Host);
  EXPECT_GT(all, 4u);
  EXPECT_EQ(roomy.ledger.total(Tier::Host), overlap + of_logs);
  const auto with = [&](size_t host_memory) {
    return prepare(model, options, {.host_memory = host_memory})
        .plan.count(&ChunkRecord::is_speculative);
  };
  EXPECT_EQ(with(overlap + of_logs), all);
  EXPECT_GT(with(overlap + of_logs / 2), 0u);
  EXPECT_LE(with(overlap + of_logs / 2), all / 2);
  EXPECT_EQ(with(overlap), 0u);
  EXPECT_THROW(with(overlap - 1), PlanError);
}

// ---- Invalid plans that validate() must find

class SpeculationPlan : public testing::Test {
 protected:
  SpeculationPlan() {
    TrainingCase run = cases()[0];
    run.update = UpdateOrder::Speculate;
    const Gpt2 model(small_gpt(), kMicroBatchSize, kLength, run.dtype);
    prepared_ = prepare_case(model, run);
  }
  bool is_valid(const Plan& plan) const {
    const PlanOptions options{.num_blocks = prepared_.num_blocks, .schedule = prepared_.schedule};
    return validate(plan, prepared_.trace, *prepared_.layout, options).empty();
  }
  Op& first_speculation(Plan& plan) const {
    return *std::ranges::find(plan.ops, OpKind::Speculate, &Op::kind);
  }
  Preparation prepared_;
};

TEST_F(SpeculationPlan, IsValid) {
  EXPECT_GT(prepared_.plan.count(&ChunkRecord::is_speculative), 5u);
  EXPECT_TRUE(is_valid(prepared_.plan));
}

TEST_F(SpeculationPlan, IsInvalidWithoutAWaitForTheGradient) {
  Plan plan = prepared_.plan;
  first_speculation(plan).num_waits = 0;
  EXPECT_FALSE(is_valid(plan));
}

TEST_F(SpeculationPlan, IsInvalidOnAnotherGradientBuffer) {
  Plan plan = prepared_.plan;
  BufferIndex& buffer = first_speculation(plan).gradient_buffer;
  buffer = BufferIndex(buffer - 1);
  EXPECT_FALSE(is_valid(plan));
}

TEST_F(SpeculationPlan, IsInvalidOnAChunkThatIsUsedAgain) {
  Plan plan = prepared_.plan;
  first_speculation(plan).chunk.index = 0;
  EXPECT_FALSE(is_valid(plan));
}

TEST_F(SpeculationPlan, IsInvalidIfNoRecordSaysSo) {
  Plan plan = prepared_.plan;
  for (ChunkRecord& chunk : plan.chunks) {
    if (chunk.is_speculative()) chunk.update = UpdateTime::Deferred;
  }
  EXPECT_FALSE(is_valid(plan));
}

}  // namespace
}  // namespace ebb::test::tests_of_speculation

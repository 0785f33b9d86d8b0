// What the planner chooses where one thing decides, and what it keeps and refuses.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "scheduler/search/choose.h"
#include "scheduler/search/evaluator.h"
#include "scheduler/search/settings.h"
#include "tests/error_of.h"
#include "tests/trainer/choose_cases.h"

namespace ebb::test {
namespace {

TEST(WhyChosen, NamesTheSpeculationThatWasNotWorthIt) {
  Preparation p;
  p.candidates = {{.schedule = {.update = UpdateOrder::Overlap}, .seconds = 1},
                  {.schedule = {.update = UpdateOrder::Speculate}, .seconds = 0.98}};
  EXPECT_EQ(why_chosen(p),
            "1.020 x the time of the next, which speculates and is slower in clipped steps");
  p.candidates[1].seconds = 1.5;
  EXPECT_EQ(why_chosen(p), "fastest, the next takes 1.500 x");
}

// Planted: the slowest candidate and the first candidate are not the best choice here.
TEST_F(ChooseTest, ASlowLinkMakesItVertical) {
  const TrainerOptions options = open(4);
  const size_t bytes = smallest(options, kRecomputeNone);
  const Machine slow = gpu(2000 * kGB, 1 * kGB, 50 * kGB);
  EXPECT_EQ(choose_in(options, bytes, slow).schedule.micro_batch_order, MicroBatchOrder::Vertical);
}

TEST_F(ChooseTest, NothingIsRecomputedIfMemoryAllows) {
  const TrainerOptions options = open(2);
  const Machine machine = gpu(200 * kGB, 5 * kGB, 50 * kGB);
  const size_t all = resident(options, kRecomputeNone, MicroBatchOrder::Vertical);
  EXPECT_EQ(choose_in(options, all, machine).schedule.recompute, kRecomputeNone);
  const size_t block = smallest(options, kRecomputeEach);
  ASSERT_LT(block, smallest(options, kRecomputeNone));
  const Preparation tight = choose_in(options, block, machine);
  EXPECT_FALSE(tight.schedule.recompute.groups.empty());
  EXPECT_FALSE(tight.candidates[0].why_not.empty());
  EXPECT_EQ(tight.candidates[0].smallest_device_bytes, smallest(options, kRecomputeNone));
}

TEST_F(ChooseTest, WithoutALinkSharedCoresWaitOnlyIfThatIsFaster) {
  TrainerOptions options = open(1);
  options.schedule.recompute = kRecomputeNone;
  for (double update : {5.0, 50.0}) {
    Machine machine = host(20 * kGB, 40 * kGB);
    machine.update_bytes_per_s = update * kGB;
    const Preparation p = prepare(model_, options, {.device = {.num_threads = 1}}, machine);
    ASSERT_EQ(p.candidates.size(), 2u);
    ASSERT_EQ(p.candidates[0].schedule.update, UpdateOrder::Overlap);
    const double overlap_s = p.candidates[0].seconds, wait_s = p.candidates[1].seconds;
    EXPECT_EQ(p.schedule.update == UpdateOrder::Wait, wait_s < overlap_s * (1 - kEqualSeconds));
  }
}

TEST_F(ChooseTest, WithoutRatesMovedBytesAndFlopsDecide) {
  const TrainerOptions options = open(4);
  const size_t all = resident(options, kRecomputeNone, MicroBatchOrder::Vertical);
  const Preparation roomy = choose_in(options, all, {});
  EXPECT_EQ(roomy.schedule.micro_batch_order, MicroBatchOrder::Horizontal);
  EXPECT_EQ(roomy.schedule.recompute, kRecomputeNone);
  EXPECT_EQ(roomy.schedule.update, UpdateOrder::Overlap);
  const Preparation tight = choose_in(options, smallest(options, kRecomputeEach), {});
  for (const Candidate& c : tight.candidates) {
    if (!c.why_not.empty()) continue;
    EXPECT_GE(c.moved_bytes, tight.candidates[tight.chosen].moved_bytes);
  }
  EXPECT_EQ(tight.schedule.update, UpdateOrder::Overlap);
}

/// The update takes 1.8 times as long as the forward: the planner speculates on some chunks, not on
/// all. It does not speculate if the forward hides the update, if there is no memory for undo logs,
/// or without clipping.
TEST_F(ChooseTest, SpeculatesOnWhatTheForwardCannotHide) {
  TrainerOptions options = open(1);
  options.schedule.recompute = kRecomputeNone;
  const Preparation plain = prepare(model_, options, {.device = {.num_threads = 1}});
  const double bytes = update_bytes_per_parameter(DType::BF16, DType::BF16) *
                       static_cast<double>(plain.layout->num_model_parameters());
  const auto with_update = [&](double forwards) {
    return gpu(plain.flops, 1000 * kGB, bytes / (forwards / 3));  // a step computes for 1 s
  };
  const Preparation slow =
      prepare(model_, options, {.device = {.num_threads = 1}}, with_update(1.8));
  EXPECT_EQ(slow.schedule.update, UpdateOrder::Speculate);
  const Candidate& chosen = slow.candidates[slow.chosen];
  EXPECT_EQ(chosen.schedule.update, UpdateOrder::Speculate);
  EXPECT_GT(slow.plan.count(&ChunkRecord::is_speculative), 0u);
  EXPECT_LT(slow.plan.count(&ChunkRecord::is_speculative), slow.layout->num_chunks());
  EXPECT_EQ(chosen.schedule.speculated_chunks, slow.plan.count(&ChunkRecord::is_speculative));
  const Preparation fast =
      prepare(model_, options, {.device = {.num_threads = 1}}, with_update(0.5));
  EXPECT_EQ(fast.schedule.update, UpdateOrder::Overlap);
  const size_t least = plain.ledger.total(Tier::Host);
  const Preparation tight = prepare(
      model_, options, {.host_memory = least, .device = {.num_threads = 1}}, with_update(1.8));
  EXPECT_EQ(tight.schedule.update, UpdateOrder::Overlap);
  options.max_grad_norm = 0;
  const Preparation early =
      prepare(model_, options, {.device = {.num_threads = 1}}, with_update(1.8));
  EXPECT_EQ(early.schedule.update, UpdateOrder::Overlap);
}

/// GPT-3 6.7B on a GPU of 31 GiB. Without clipping a gradient waits only for the update of its
/// chunk. A slow update gets more gradient buffers, if there is host memory for them.
TEST_F(ChooseTest, ASlowUpdateGetsMoreGradientBuffers) {
  const Gpt2Config config = {.vocabulary = 50257,
                             .max_positions = 2048,
                             .channels = 4096,
                             .num_layers = 32,
                             .num_heads = 32};
  const Gpt2 model(config, 4, 1024, DType::BF16);
  const TrainerOptions options = {.schedule = {.recompute = kRecomputeNone}, .max_grad_norm = 0};
  const auto choose_with = [&](std::optional<uint32_t> slots, double update,
                               std::optional<size_t> host_memory = {}) {
    TrainerOptions requested = options;
    requested.schedule.gradient_buffers = slots;
    Machine machine = gpu(190e12, 53 * kGB, update);
    machine.device_bytes_per_s = 1500 * kGB;
    return prepare(model, requested,
                   {.device_memory = size_t{31} << 30,
                    .host_memory = host_memory,
                    .device = {.kind = DeviceKind::Cuda, .num_threads = 1}},
                   machine);
  };
  const Preparation few = choose_with(kGradientBuffers, 80 * kGB), all = choose_with({}, 80 * kGB);
  // More buffers remove more than half of the time that the slow update adds to the bound.
  const double bound_s = all.candidates[all.chosen].bound.seconds;
  EXPECT_LT(seconds(all) - bound_s, 0.5 * (seconds(few) - bound_s));
  EXPECT_GT(all.schedule.gradient_buffers, kGradientBuffers);
  EXPECT_LT(all.schedule.gradient_buffers, all.layout->num_chunks());
  const size_t room = few.ledger.total(Tier::Host);
  const Preparation tight = choose_with({}, 80 * kGB, room);
  EXPECT_LE(tight.ledger.total(Tier::Host), room);
  EXPECT_LE(seconds(tight), seconds(choose_with(kGradientBuffers, 80 * kGB, room)));
  EXPECT_EQ(choose_with({}, 1000 * kGB).schedule.gradient_buffers, kGradientBuffers);
}

/// If host memory is too small for all state, the state of some chunks is stored on the device.
TEST_F(ChooseTest, StoresStateOnTheDeviceIfHostMemoryIsTooSmall) {
  TrainerOptions options = open(2);
  const Machine machine = gpu(200 * kGB, 100 * kGB, 50 * kGB);
  const auto choose_with = [&](std::optional<size_t> host_memory, size_t device_memory) {
    return prepare(
        model_, options,
        {.device_memory = device_memory, .host_memory = host_memory, .device = {.num_threads = 1}},
        machine);
  };
  const size_t roomy = 4 * resident(options, kRecomputeNone, MicroBatchOrder::Vertical);
  options.schedule.device_updates = 0;
  const size_t needed = choose_with({}, roomy).ledger.total(Tier::Host);
  options.schedule.device_updates = {};
  for (const double share : {0.999, 0.7, 0.5}) {
    const auto room = static_cast<size_t>(share * static_cast<double>(needed));
    const Preparation p = choose_with(room, roomy);
    EXPECT_LE(p.ledger.total(Tier::Host), room);
    EXPECT_LE(p.ledger.total(Tier::Device), roomy);
    EXPECT_GT(p.plan.count(&ChunkRecord::is_on_device), 0u);
    options.schedule.device_updates = 0;
    EXPECT_THROW(choose_with(room, roomy), PlanError);
    options.schedule.device_updates = {};
  }
  // The smallest device budget has no memory for state, so all state must fit in host memory.
  EXPECT_THROW(choose_with(needed / 2, smallest(options, kRecomputeEach)), PlanError);
}

TEST_F(ChooseTest, ARequestedSettingIsNotChanged) {
  TrainerOptions requested = open(2);
  requested.schedule.micro_batch_order = MicroBatchOrder::Vertical;
  requested.schedule.recompute = kRecomputeEach;
  requested.schedule.update = UpdateOrder::Wait;
  const Preparation p =
      prepare(model_, requested, {.device = {.num_threads = 1}}, host(1 * kGB, 0));
  ASSERT_EQ(p.candidates.size(), 1u);
  EXPECT_GT(p.candidates[0].seconds, 0);
  EXPECT_EQ(p.schedule.micro_batch_order, MicroBatchOrder::Vertical);
  EXPECT_EQ(p.schedule.recompute, kRecomputeEach);
  EXPECT_EQ(p.schedule.update, UpdateOrder::Wait);
  EXPECT_EQ(why_chosen(p), "the flags leave no other candidate");
}

/// The names of the settings. Each setting must have each value from the least to the most.
std::string names_of(const std::vector<Setting>& settings, const Schedule& schedule) {
  std::string names;
  for (const Setting& s : settings) {
    names += fmt::format("{} ", s.name);
    for (uint32_t value = s.least; value <= s.most; ++value) {
      Schedule changed = schedule;
      s.set(value, changed);
      EXPECT_EQ(s.now(changed), value) << s.name;
    }
  }
  return names;
}

/// Each amount of recomputation is a schedule of its own.
TEST_F(ChooseTest, SearchesTheAmountOfRecomputation) {
  const TrainerOptions options{.schedule = {.update = UpdateOrder::Wait, .device_updates = 0}};
  const Preparation p = prepare(model_, options, {.device = {.num_threads = 1}});
  for (const auto activations : {ActivationPlacement::Device, ActivationPlacement::Offload}) {
    const Schedule now{.recompute = kRecomputeEach, .activations = activations};
    EXPECT_EQ(names_of(settings_of(options, p, now), now), "recompute ");
  }
}

TEST_F(ChooseTest, SearchesTheNumbersThatAreOpenAndHaveAnEffect) {
  const auto searched = [this](const TrainerOptions& requested) {
    const Preparation p = prepare(model_, requested, {.device = {.num_threads = 1}});
    std::string names;
    return names_of(settings_of(requested, p, p.schedule), p.schedule);
  };
  TrainerOptions options{.chunk_bytes = 2 * kPieceElements,
                         .schedule = {.recompute = kRecomputeNone}};
  EXPECT_EQ(searched(options), "device_updates speculated_chunks ");
  options.schedule.update = UpdateOrder::Overlap;
  EXPECT_EQ(searched(options), "device_updates ");
  options.max_grad_norm = 0;
  EXPECT_EQ(searched(options), "deferred_share device_updates resident_chunks gradient_buffers ");
  options.gradient_accumulation = 2;
  EXPECT_EQ(searched(options),
            "deferred_share device_updates resident_chunks kept_sums gradient_buffers ");
  options.gradient_accumulation = 1;
  options.schedule.update = UpdateOrder::Wait;
  options.schedule.device_updates = options.schedule.gradient_buffers = 1;
  EXPECT_EQ(searched(options), "resident_chunks ");
}

TEST_F(ChooseTest, ATooSmallBudgetIsRefusedWithTheSmallestThatWorks) {
  const TrainerOptions options = open(2);
  const size_t least = smallest(options, kRecomputeEach);
  EXPECT_NO_THROW(choose_in(options, least, {}));
  EXPECT_SAYS(error_of<PlanError>([&] { choose_in(options, least - 1, {}); }),
              std::to_string(least));
}

TEST_F(ChooseTest, BothTiersMustFitTogetherInSharedMemory) {
  TrainerOptions options = open(1);
  const Preparation all = prepare(model_, options, {.device = {.num_threads = 1}});
  const size_t needed = all.ledger.total(Tier::Host) + all.ledger.total(Tier::Device);
  ASSERT_EQ(all.schedule.recompute, kRecomputeNone);
  const Preparation less =
      prepare(model_, options, {.total_memory = needed - 1, .device = {.num_threads = 1}});
  EXPECT_FALSE(less.schedule.recompute.groups.empty());
  EXPECT_SAYS(less.candidates[0].why_not, "in all");
}

TEST_F(ChooseTest, TheDeviceGetsWhatTheHostLeavesOfSharedMemory) {
  const TrainerOptions options = open(1);
  const auto total_of = [](const Preparation& p) {
    return p.ledger.total(Tier::Host) + p.ledger.total(Tier::Device);
  };
  const size_t smallest =
      prepare(model_, options, {.device = {.num_threads = 1}}).smallest_device_bytes;
  const size_t least =
      total_of(prepare(model_, options, {.device_memory = smallest, .device = {.num_threads = 1}}));
  const Preparation tight =
      prepare(model_, options, {.total_memory = least, .device = {.num_threads = 1}});
  EXPECT_LE(total_of(tight), least);
  EXPECT_LT(tight.num_blocks, tight.full_blocks);
  const Preparation roomy =
      prepare(model_, options, {.total_memory = least + least / 16, .device = {.num_threads = 1}});
  EXPECT_LE(total_of(roomy), least + least / 16);
  EXPECT_GT(roomy.num_blocks, tight.num_blocks);
  EXPECT_LT(roomy.num_blocks, roomy.full_blocks);
  EXPECT_THROW(prepare(model_, options, {.total_memory = least / 2, .device = {.num_threads = 1}}),
               PlanError);
}

}  // namespace
}  // namespace ebb::test

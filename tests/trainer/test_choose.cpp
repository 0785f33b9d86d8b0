// Compares the planner's choice with plans that are made for each setting explicitly.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "scheduler/search/choose.h"
#include "scheduler/search/settings.h"
#include "tests/trainer/cases.h"

namespace ebb::test {
namespace {

constexpr double kRounding = 1e-9;
constexpr double kGB = 1e9;

struct Situation {
  const char* name;
  Machine machine;
  uint32_t accumulation;
  double slack;  ///< the budget: 0 is the smallest, 1 keeps all resident without recomputation
  bool clip = true;
};

constexpr Machine gpu(double flops, double link, double update) {
  return {.flops_per_s = flops,
          .device_bytes_per_s = 500 * kGB,
          .load_bytes_per_s = link,
          .store_bytes_per_s = link,
          .update_bytes_per_s = update};
}
constexpr Machine host(double link, double copy) {
  return {.flops_per_s = 300 * kGB,
          .device_bytes_per_s = 40 * kGB,
          .load_bytes_per_s = link,
          .store_bytes_per_s = link,
          .update_bytes_per_s = 50 * kGB,
          .shared_cores = true,
          .copy_bytes_per_s = copy};
}

constexpr Situation kSituations[] = {
    {"slow link", gpu(2000 * kGB, 1 * kGB, 50 * kGB), 4, 0.3},
    {"slow link, one batch", gpu(2000 * kGB, 1 * kGB, 50 * kGB), 1, 0.3},
    {"slow link, tight", gpu(2000 * kGB, 1 * kGB, 50 * kGB), 2, 0},
    {"fast link, tight", gpu(200 * kGB, 100 * kGB, 50 * kGB), 4, 0},
    {"fast link, roomy", gpu(200 * kGB, 100 * kGB, 50 * kGB), 3, 0.9},
    {"slow update", gpu(2000 * kGB, 20 * kGB, 1 * kGB), 2, 0.5},
    {"slow update, no clipping", gpu(2000 * kGB, 20 * kGB, 1 * kGB), 2, 0.5, false},
    {"slow kernels", gpu(20 * kGB, 5 * kGB, 50 * kGB), 2, 0.2},
    {"host", host(20 * kGB, 40 * kGB), 2, 0.5},
    {"host, tight", host(20 * kGB, 40 * kGB), 4, 0},
    {"host, slow link", host(0.5 * kGB, 40 * kGB), 4, 0.3},
    {"host, slow link, no clipping", host(0.5 * kGB, 40 * kGB), 1, 0.1, false},
    {"host, copies cost nothing", host(2 * kGB, 0), 2, 0.4, false},
};

class Choosing : public testing::TestWithParam<Situation> {
 protected:
  TrainerOptions options() const {
    TrainerOptions options =
        TrainingCase{.clip = GetParam().clip, .accumulation = GetParam().accumulation}.options();
    options.schedule.recompute.reset();
    options.schedule.micro_batch_order.reset();
    options.schedule.activations.reset();
    options.schedule.update.reset();
    return options;
  }
  Budgets budgets() const {
    TrainerOptions simple = options();
    simple.schedule.recompute = kRecomputeNone;
    simple.schedule.micro_batch_order = MicroBatchOrder::Horizontal;
    const Preparation all = prepare(model_, simple, {.device = {.num_threads = 1}});
    const size_t least =
        prepare(model_, options(), {.device = {.num_threads = 1}}).smallest_device_bytes;
    const auto more = static_cast<double>(all.full_device_bytes - least);
    return {.device_memory = least + static_cast<size_t>(more * GetParam().slack),
            .device = {.num_threads = 1}};
  }
  Preparation chosen() const { return prepare(model_, options(), budgets(), GetParam().machine); }

  /// Returns the predicted seconds of a step for each setting; infinite if the setting does not
  /// fit.
  std::vector<double> by_hand(const Preparation& p) const {
    std::vector<double> seconds;
    for (const Candidate& c : p.candidates) {
      TrainerOptions requested = options();
      requested.schedule.micro_batch_order = c.schedule.micro_batch_order;
      requested.schedule.recompute = c.schedule.recompute;
      requested.schedule.activations = c.schedule.activations;
      requested.schedule.update = c.schedule.update;
      try {
        const Preparation one = prepare(model_, requested, budgets(), GetParam().machine);
        seconds.push_back(simulate(one.plan, one.trace, *one.layout, GetParam().machine).seconds);
      } catch (const PlanError&) {
        seconds.push_back(std::numeric_limits<double>::infinity());
      }
    }
    return seconds;
  }

  const Gpt2 model_{small_gpt(), kMicroBatchSize, kLength, DType::BF16};
};

/// Returns by how much the choice is slower than the best one, as a fraction; 0 for the best.
double regret(const std::vector<double>& seconds, size_t chosen) {
  const double best = *std::min_element(seconds.begin(), seconds.end());
  return seconds[chosen] <= best * (1 + kRounding) ? 0 : seconds[chosen] / best - 1;
}

TEST_P(Choosing, NoSettingIsPredictedFaster) {
  const Preparation p = chosen();
  const std::vector<double> seconds = by_hand(p);
  for (size_t i = 0; i < seconds.size(); ++i) {
    const Candidate& c = p.candidates[i];
    EXPECT_EQ(c.why_not.empty(), std::isfinite(seconds[i])) << c.why_not;
    if (c.why_not.empty()) {
      EXPECT_EQ(c.seconds, seconds[i]) << i;
      EXPECT_LE(c.bound.seconds, c.seconds * (1 + kRounding)) << i;
      EXPECT_LE(c.device_bytes, *budgets().device_memory);
    } else {
      EXPECT_GT(c.smallest_device_bytes, *budgets().device_memory);
    }
  }
  EXPECT_EQ(regret(seconds, p.chosen), 0);
  EXPECT_EQ(simulate(p.plan, p.trace, *p.layout, GetParam().machine).seconds, seconds[p.chosen]);
}

TEST_P(Choosing, TheTableIsComplete) {
  const Preparation p = chosen();
  const size_t orders = GetParam().accumulation == 1 ? 1 : 2;
  ASSERT_EQ(p.candidates.size(), orders * 3 * 2 * 2);
  for (size_t i = 0; i < p.candidates.size(); ++i) {
    const Schedule& c = p.candidates[i].schedule;
    for (size_t j = 0; j < i; ++j) {
      const Schedule& d = p.candidates[j].schedule;
      EXPECT_FALSE(c.micro_batch_order == d.micro_batch_order &&
                   c.recompute.layers_at_once == d.recompute.layers_at_once &&
                   c.activations == d.activations && c.update == d.update);
    }
  }
  const Candidate& c = p.candidates[p.chosen];
  EXPECT_EQ(c.schedule, p.schedule);
  EXPECT_EQ(c.moved_bytes, p.plan.loaded_bytes + p.plan.stored_bytes);
  EXPECT_FALSE(why_chosen(p).empty());
}

TEST_P(Choosing, IsTheSameEveryTime) {
  const Preparation a = chosen(), b = chosen();
  EXPECT_EQ(a.chosen, b.chosen);
  EXPECT_EQ(to_string(a.plan, a.trace), to_string(b.plan, b.trace));
}

INSTANTIATE_TEST_SUITE_P(Situations, Choosing, testing::ValuesIn(kSituations),
                         [](const auto& info) { return "s" + std::to_string(info.index); });

class ChooseTest : public testing::Test {
 protected:
  static TrainerOptions open(uint32_t accumulation) {
    TrainerOptions options = TrainingCase{.accumulation = accumulation}.options();
    options.schedule.recompute.reset();
    options.schedule.micro_batch_order.reset();
    options.schedule.update.reset();
    return options;
  }
  size_t resident(TrainerOptions options, Recompute recompute, MicroBatchOrder order) const {
    options.schedule.recompute = recompute;
    options.schedule.micro_batch_order = order;
    return prepare(model_, options, {.device = {.num_threads = 1}}).full_device_bytes;
  }
  size_t smallest(TrainerOptions options, Recompute recompute) const {
    options.schedule.recompute = recompute;
    return prepare(model_, options, {.device = {.num_threads = 1}}).smallest_device_bytes;
  }
  Preparation choose_in(const TrainerOptions& options, size_t bytes, const Machine& machine) const {
    return prepare(model_, options, {.device_memory = bytes, .device = {.num_threads = 1}},
                   machine);
  }
  const Gpt2 model_{small_gpt(), kMicroBatchSize, kLength, DType::BF16};
};

double seconds(const Preparation& p) { return p.candidates[p.chosen].seconds; }

// The link cannot store all activations of the forward while the kernels run. The planner
// recomputes some layers of each group of consecutive layers, so that no kernel waits for a store.
// Recomputing only the first layers is slower, because the stores of the other layers then wait.
TEST(Choose, SpreadsRecomputedLayersWhenTheLinkIsTooSlow) {
  Gpt2Config config = small_gpt();
  config.num_layers = 12;
  const Gpt2 model(config, kMicroBatchSize, kLength, DType::BF16);
  TrainerOptions options{.chunk_bytes = size_t{1} << 20, .gradient_accumulation = 8};
  options.schedule = {.micro_batch_order = MicroBatchOrder::Vertical,
                      .recompute = kRecomputeNone,
                      .activations = ActivationPlacement::Offload};
  const size_t least =
      prepare(model, options, {.device = {.num_threads = 1}}).smallest_device_bytes;
  const auto prepared = [&](std::optional<Recompute> recompute, const Machine& machine) {
    options.schedule.recompute = recompute;
    return prepare(model, options, {.device_memory = least * 5 / 4, .device = {.num_threads = 1}},
                   machine);
  };
  Machine machine{.flops_per_s = 1000 * kGB, .update_bytes_per_s = 1000 * kGB};
  const Preparation kept = prepared(kRecomputeNone, machine);
  // A forward takes a third of the kernels' time. Its stores take twice as long as the forward.
  machine.load_bytes_per_s = machine.store_bytes_per_s =
      static_cast<double>(kept.plan.stored_bytes) / (kept.flops / machine.flops_per_s / 3 * 2);
  const Preparation p = prepared({}, machine);
  const Candidate& c = p.candidates[p.chosen];
  const Recompute chosen = c.schedule.recompute;
  EXPECT_EQ(chosen.layers_at_once, 1u);
  EXPECT_NE(chosen.of, kAllLayers);
  EXPECT_GT(recomputed_layers(chosen, 12), 0u);
  EXPECT_LT(recomputed_layers(chosen, 12), 12u);
  for (const Recompute other : {kRecomputeNone, kRecomputeEach}) {
    EXPECT_LT(1.02 * c.seconds, seconds(prepared(other, machine))) << name_of(other);
  }
  for (uint32_t first = 1; first < 12; ++first) {
    const Recompute of_first{.layers_at_once = 1, .first = first};
    EXPECT_LT(c.seconds, seconds(prepared(of_first, machine))) << "the first " << first;
  }
}

class ChooseRecomputed : public testing::Test {
 protected:
  static constexpr size_t kGiB = size_t{1} << 30;

  Preparation choose_with(const TrainerOptions& requested, size_t device_memory,
                          std::optional<size_t> host_memory = {}) const {
    Machine machine = gpu(150e12, 25 * kGB, 65 * kGB);
    machine.device_bytes_per_s = 850 * kGB;
    return prepare(
        model_, requested,
        {.device_memory = device_memory, .host_memory = host_memory, .device = {.num_threads = 1}},
        machine);
  }
  static TrainerOptions recomputed(TrainerOptions options, uint32_t num, uint32_t of) {
    options.schedule.recompute = Recompute{.layers_at_once = 1, .first = num, .of = of};
    return options;
  }

  const Gpt2 model_{{.vocabulary = 50257,
                     .max_positions = 1024,
                     .channels = 1600,
                     .num_layers = 24,
                     .num_heads = 25},
                    4,
                    1024,
                    DType::BF16};
  TrainerOptions open_ = {.gradient_accumulation = 8,
                          .schedule = {.micro_batch_order = MicroBatchOrder::Vertical,
                                       .activations = ActivationPlacement::Offload}};
};

// The time is not monotonic in the number of recomputed layers, so the planner must try each
// number.
TEST_F(ChooseRecomputed, ConsidersEveryNumberOfLayers) {
  for (const size_t gib : {4, 6, 8}) {
    const double chosen_s = seconds(choose_with(open_, gib * kGiB));
    for (const uint32_t of : {2, 3, 4}) {
      for (uint32_t num = 1; num < of; ++num) {
        const Preparation requested = choose_with(recomputed(open_, num, of), gib * kGiB);
        EXPECT_LE(chosen_s, (1 + kRounding) * seconds(requested))
            << num << " of " << of << " in " << gib << " GiB";
      }
    }
  }
}

// Gradient buffers that make no step faster must not take host memory that activations need.
TEST_F(ChooseRecomputed, GradientBuffersLeaveHostMemoryForActivations) {
  open_.max_grad_norm = 0;
  TrainerOptions few = recomputed(open_, 3, 4);
  few.schedule.gradient_buffers = kGradientBuffers;
  const Preparation requested = choose_with(few, 8 * kGiB);
  const Preparation chosen = choose_with(open_, 8 * kGiB, requested.ledger.total(Tier::Host));
  EXPECT_LE(seconds(chosen), (1 + kRounding) * seconds(requested));
}

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
TEST_F(ChooseTest, APlantedWrongChoiceIsFound) {
  const TrainerOptions options = open(4);
  const size_t bytes = smallest(options, kRecomputeNone);
  const Preparation p = choose_in(options, bytes, gpu(2000 * kGB, 1 * kGB, 50 * kGB));
  std::vector<double> seconds;
  for (const Candidate& c : p.candidates) {
    seconds.push_back(c.why_not.empty() ? c.seconds : std::numeric_limits<double>::infinity());
  }
  size_t slowest = p.chosen;
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (std::isfinite(seconds[i]) && seconds[i] > seconds[slowest]) slowest = i;
  }
  EXPECT_EQ(regret(seconds, p.chosen), 0);
  EXPECT_GT(regret(seconds, slowest), 0.1);
  EXPECT_GT(regret(seconds, 0), 0.1);
}

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
  EXPECT_EQ(tight.schedule.recompute.layers_at_once, 1u);
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
    EXPECT_EQ(p.schedule.update == UpdateOrder::Wait, wait_s < overlap_s * (1 - kRounding));
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

TEST_F(ChooseTest, SearchesTheNumbersThatAreOpenAndHaveAnEffect) {
  const auto searched = [this](const TrainerOptions& requested) {
    const Preparation p = prepare(model_, requested, {.device = {.num_threads = 1}});
    std::string names;
    for (const Setting& s : settings_of(requested, p, p.schedule)) {
      names += fmt::format("{} ", s.name);
      Schedule changed = p.schedule;
      s.set(s.most, changed);
      EXPECT_EQ(s.now(changed), s.most) << s.name;
    }
    return names;
  };
  TrainerOptions options{.schedule = {.recompute = kRecomputeNone}};
  EXPECT_EQ(searched(options), "device_updates speculated_chunks ");
  options.schedule.update = UpdateOrder::Overlap;
  EXPECT_EQ(searched(options), "device_updates ");
  options.max_grad_norm = 0;
  EXPECT_EQ(searched(options), "device_updates resident_chunks deferred_share gradient_buffers ");
  options.schedule.update = UpdateOrder::Wait;
  options.schedule.device_updates = options.schedule.gradient_buffers = 1;
  EXPECT_EQ(searched(options), "resident_chunks ");
}

TEST_F(ChooseTest, ATooSmallBudgetIsRefusedWithTheSmallestThatWorks) {
  const TrainerOptions options = open(2);
  const size_t least = smallest(options, kRecomputeEach);
  EXPECT_NO_THROW(choose_in(options, least, {}));
  try {
    choose_in(options, least - 1, {});
    FAIL() << "a budget that is too small was accepted";
  } catch (const PlanError& e) {
    EXPECT_NE(std::string(e.what()).find(std::to_string(least)), std::string::npos) << e.what();
  }
}

TEST_F(ChooseTest, BothTiersMustFitTogetherInSharedMemory) {
  TrainerOptions options = open(1);
  const Preparation all = prepare(model_, options, {.device = {.num_threads = 1}});
  const size_t needed = all.ledger.total(Tier::Host) + all.ledger.total(Tier::Device);
  ASSERT_EQ(all.schedule.recompute, kRecomputeNone);
  const Preparation less =
      prepare(model_, options, {.total_memory = needed - 1, .device = {.num_threads = 1}});
  EXPECT_EQ(less.schedule.recompute.layers_at_once, 1u);
  EXPECT_NE(less.candidates[0].why_not.find("in all"), std::string::npos);
  EXPECT_THROW(prepare(model_, options, {.total_memory = needed / 2, .device = {.num_threads = 1}}),
               PlanError);
}

}  // namespace
}  // namespace ebb::test

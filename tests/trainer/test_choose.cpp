// Compares the planner's choice with plans that are made for each candidate explicitly.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "scheduler/search/choose.h"
#include "scheduler/search/evaluator.h"
#include "tests/trainer/choose_cases.h"

namespace ebb::test {
namespace {

struct Situation {
  const char* name;
  Machine machine;
  uint32_t accumulation;
  double slack;  ///< the budget: 0 is the smallest, 1 keeps all resident without recomputation
  bool clip = true;
};

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

  /// Returns the predicted seconds of a step for each candidate; infinite if it does not fit.
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
  return seconds[chosen] <= best * (1 + kEqualSeconds) ? 0 : seconds[chosen] / best - 1;
}

TEST_P(Choosing, NoSettingIsPredictedFaster) {
  const Preparation p = chosen();
  const std::vector<double> seconds = by_hand(p);
  for (size_t i = 0; i < seconds.size(); ++i) {
    const Candidate& c = p.candidates[i];
    EXPECT_EQ(c.why_not.empty(), std::isfinite(seconds[i])) << c.why_not;
    if (c.why_not.empty()) {
      EXPECT_EQ(c.seconds, seconds[i]) << i;
      EXPECT_LE(c.bound.seconds, c.seconds * (1 + kEqualSeconds)) << i;
      EXPECT_LE(c.device_bytes, *budgets().device_memory);
    } else {
      EXPECT_GT(c.smallest_device_bytes, *budgets().device_memory);
    }
  }
  EXPECT_EQ(regret(seconds, p.chosen), 0);
  EXPECT_EQ(simulate(p.plan, p.trace, *p.layout, GetParam().machine).seconds, seconds[p.chosen]);
}

/// Where the planner recomputes some layers, it has compared them with all layers. Recomputing all
/// of them takes less memory, so it fits as well.
TEST_P(Choosing, RecomputingAllLayersIsNotPredictedFaster) {
  const Preparation p = chosen();
  int num_compared = 0;
  for (const Candidate& c : p.candidates) {
    if (!c.why_not.empty() || c.schedule.recompute.groups.size() < 2) continue;
    TrainerOptions requested = options();
    requested.schedule.micro_batch_order = c.schedule.micro_batch_order;
    requested.schedule.recompute = recompute_together(c.schedule.recompute.layers_at_once);
    requested.schedule.activations = c.schedule.activations;
    requested.schedule.update = c.schedule.update;
    const Preparation all = prepare(model_, requested, budgets(), GetParam().machine);
    EXPECT_GE(simulate(all.plan, all.trace, *all.layout, GetParam().machine).seconds,
              c.seconds * (1 - kEqualSeconds));
    ++num_compared;
  }
  if (num_compared == 0) GTEST_SKIP() << "every candidate recomputes all layers or none fits";
}

TEST_P(Choosing, TheTableIsComplete) {
  const Preparation p = chosen();
  const size_t orders = GetParam().accumulation == 1 ? 1 : 2;
  ASSERT_EQ(p.candidates.size(), orders * 4 * 2 * 2);
  // The search may have changed what two candidates recompute to the same, but not more.
  for (const Candidate& c : p.candidates) {
    const auto num = std::ranges::count_if(p.candidates, [&](const Candidate& other) {
      return other.schedule.micro_batch_order == c.schedule.micro_batch_order &&
             other.schedule.recompute == c.schedule.recompute &&
             other.schedule.activations == c.schedule.activations &&
             other.schedule.update == c.schedule.update;
    });
    EXPECT_LE(num, 2);
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

// The link cannot store all activations of the forward while the kernels run. The planner
// recomputes some layers of each group of consecutive layers, so that no kernel waits for a store.
// Recomputing only the first layers is slower, because the stores of the other layers then wait.
TEST(Choose, SpreadsRecomputedLayersWhenTheLinkIsTooSlow) {
  Gpt2Config config = small_gpt();
  config.num_layers = 12;
  const Gpt2 model(config, 16 * kMicroBatchSize, kLength, DType::BF16);
  TrainerOptions options{.chunk_bytes = size_t{1} << 17, .gradient_accumulation = 8};
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
  // A forward takes a third of the kernels' time. Its stores take 1.8 times as long.
  machine.load_bytes_per_s = machine.store_bytes_per_s =
      static_cast<double>(kept.plan.stored_bytes) / (kept.flops / machine.flops_per_s / 3 * 1.8);
  const Preparation p = prepared({}, machine);
  const Candidate& c = p.candidates[p.chosen];
  const std::vector<ValueGroups>& chosen = c.schedule.recompute.groups;
  ASSERT_EQ(chosen.size(), 12u) << name_of(c.schedule.recompute, 12) << c.seconds;
  EXPECT_NE(chosen[0], chosen[11]);
  for (const Recompute& other : {kRecomputeNone, kRecomputeEach}) {
    EXPECT_LT(1.02 * c.seconds, seconds(prepared(other, machine))) << name_of(other, 12);
  }
  std::vector<ValueGroups> first = chosen;  // the same, but not spread
  std::ranges::sort(first, std::ranges::greater{});
  EXPECT_LT(c.seconds, seconds(prepared(Recompute{first}, machine)))
      << name_of(c.schedule.recompute, 12);
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
  /// The first `num` layers of each `of` recompute these values.
  static TrainerOptions recomputed(TrainerOptions options, uint32_t num, uint32_t of,
                                   ValueGroups groups = kWholeLayer) {
    Recompute recompute{std::vector<ValueGroups>(of, kKeepAll)};
    std::fill_n(recompute.groups.begin(), num, groups);
    options.schedule.recompute = recompute;
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
    for (const uint32_t of : {1, 2, 3, 4}) {
      for (uint32_t num = 1; num <= of; ++num) {
        for (const ValueGroups groups : {kNormsLevel, kMlpLevel, kAttentionLevel, kWholeLayer}) {
          const Preparation requested = choose_with(recomputed(open_, num, of, groups), gib * kGiB);
          EXPECT_LE(chosen_s, (1 + kEqualSeconds) * seconds(requested))
              << name_of_groups(groups) << " in " << num << " of " << of << " in " << gib << " GiB";
        }
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
  EXPECT_LE(seconds(chosen), (1 + kEqualSeconds) * seconds(requested));
}

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

}  // namespace
}  // namespace ebb::test

#include <gtest/gtest.h>

#include "scheduler/plan/simulate.h"
#include "tests/scheduler/plan_cases.h"

namespace ebb {
namespace {

using test::Case;
using test::Planned;

// Each call has 100 flops and 10 bytes. A chunk of weights has 131,072 bytes.
constexpr double kChunk = 131072;

Plan evaluation_plan(const Case& c, uint32_t num_blocks) {
  return make_plan(c.trace, c.layout, {.num_blocks = num_blocks, .update = false});
}

TEST(Simulate, LoadsOverlapCompute) {
  const Case c = test::make_case_from_text("r0 r1 r2", 3, 65536, 3);
  // A load takes 1 s and a call 2 s: all loads but the first one overlap with calls.
  const Machine machine{.flops_per_s = 50, .load_bytes_per_s = kChunk};
  const Simulation s = simulate(evaluation_plan(c, 3), c.trace, c.layout, machine);
  EXPECT_DOUBLE_EQ(s.seconds, 1 + 3 * 2);
  EXPECT_DOUBLE_EQ(s.stall_s, 0);
  EXPECT_DOUBLE_EQ(s.stream_busy[StreamKind::Compute], 6);
  EXPECT_DOUBLE_EQ(s.stream_busy[StreamKind::Load], 3);
}

TEST(Simulate, ASlowLinkStallsCompute) {
  const Case c = test::make_case_from_text("r0 r1 r2", 3, 65536, 3);
  const Machine machine{.flops_per_s = 100, .load_bytes_per_s = kChunk / 2};
  const Simulation s = simulate(evaluation_plan(c, 3), c.trace, c.layout, machine);
  EXPECT_DOUBLE_EQ(s.seconds, 3 * 2 + 1);
  EXPECT_DOUBLE_EQ(s.stall_s, 2);  // two stalls of 1 s between calls
}

TEST(Simulate, ALoadWaitsForItsBlock) {
  const Case c = test::make_case_from_text("r0 r1 r2", 3, 65536, 3);
  const Machine machine{.flops_per_s = 50, .load_bytes_per_s = kChunk};
  const Simulation one = simulate(evaluation_plan(c, 1), c.trace, c.layout, machine);
  EXPECT_DOUBLE_EQ(one.seconds, 3 * (1 + 2));
  const Simulation two = simulate(evaluation_plan(c, 2), c.trace, c.layout, machine);
  EXPECT_DOUBLE_EQ(two.seconds, 1 + 3 * 2);
}

TEST(Simulate, MemoryTrafficCountsIfItTakesLonger) {
  const Case c = test::make_case_from_text("r0", 1, 65536, 1);
  Machine machine{.flops_per_s = 100, .device_bytes_per_s = 5};
  EXPECT_DOUBLE_EQ(simulate(evaluation_plan(c, 1), c.trace, c.layout, machine).seconds, 2);
  machine.device_bytes_per_s = 50;
  EXPECT_DOUBLE_EQ(simulate(evaluation_plan(c, 1), c.trace, c.layout, machine).seconds, 1);
}

TEST(Simulate, ACoreAddsMemoryTrafficToArithmetic) {
  const Case c = test::make_case_from_text("r0", 1, 65536, 1);
  Machine machine{.flops_per_s = 100, .device_bytes_per_s = 5, .shared_cores = true};
  EXPECT_DOUBLE_EQ(simulate(evaluation_plan(c, 1), c.trace, c.layout, machine).seconds, 1 + 2);
  machine.emulate_compute = true;
  EXPECT_DOUBLE_EQ(simulate(evaluation_plan(c, 1), c.trace, c.layout, machine).seconds, 2);
}

TEST(Simulate, AStepOfOneChunkTakesTheExpectedTime) {
  const Case c = test::make_case_from_text("r0 w0", 1, 65536, 1);
  const Plan plan = test::plan_case(c, 4, false).plan;
  const double update_bytes = 65536 * 26.0;
  const Machine machine{.flops_per_s = 100,               // 1 s for each call
                        .device_bytes_per_s = 65536 * 6,  // 1 s to round: 4 + 2 bytes per element
                        .load_bytes_per_s = kChunk / 3,   // 3 s
                        .store_bytes_per_s = kChunk / 5,  // 5 s
                        .update_bytes_per_s = update_bytes / 7};  // 7 s
  const Simulation s = simulate(plan, c.trace, c.layout, machine);
  EXPECT_DOUBLE_EQ(s.seconds, 3 + 1 + 1 + 1 + 5 + 7);
  const Bound bound = lower_bound(c.trace, c.layout, plan, machine, false);
  EXPECT_DOUBLE_EQ(bound.compute_s, 3);
  EXPECT_DOUBLE_EQ(bound.load_s, 3);
  EXPECT_DOUBLE_EQ(bound.store_s, 5);
  EXPECT_DOUBLE_EQ(bound.update_s, 7);
  EXPECT_DOUBLE_EQ(bound.seconds, 7);
  EXPECT_STREQ(bound.bound_by, "update");
  const Plan clipped_plan = test::plan_case(c, 4, true).plan;
  const Bound clipped = lower_bound(c.trace, c.layout, clipped_plan, machine, true);
  EXPECT_DOUBLE_EQ(clipped.seconds,
                   7 + 5);  // the update during the forward, the store during the backward
  EXPECT_STREQ(clipped.bound_by, "update, forward");
}

TEST(Simulate, WithSharedCoresAllWorkAddsUp) {
  const Case c = test::make_case_from_text("r0 w0", 1, 65536, 1);
  const Plan plan = test::plan_case(c, 4, false).plan;
  Machine machine{.flops_per_s = 100, .update_bytes_per_s = 65536 * 26.0 / 7, .shared_cores = true};
  EXPECT_DOUBLE_EQ(lower_bound(c.trace, c.layout, plan, machine, false).seconds, 2 + 7);
  machine.copy_bytes_per_s = kChunk;  // one load, one store
  EXPECT_DOUBLE_EQ(lower_bound(c.trace, c.layout, plan, machine, false).seconds, 2 + 7 + 2);
}

TEST(Simulate, EmulatedKernelsUseNoCores) {
  const Case c = test::make_case_from_text("r0 w0", 1, 65536, 1);
  const Machine machine{.flops_per_s = 50,  // 2 s for each call
                        .update_bytes_per_s = 65536 * 26.0 / 7,
                        .shared_cores = true,
                        .emulate_compute = true,
                        .copy_bytes_per_s = kChunk};  // one load, one store
  const Plan plan = test::plan_case(c, 4, false).plan;
  const Bound bound = lower_bound(c.trace, c.layout, plan, machine, false);
  EXPECT_DOUBLE_EQ(bound.seconds, 7 + 2);
  EXPECT_STREQ(bound.bound_by, "update");
  const Plan clipped_plan = test::plan_case(c, 4, true).plan;
  const Bound clipped = lower_bound(c.trace, c.layout, clipped_plan, machine, true);
  // During the forward the update and the load, then the backward.
  EXPECT_DOUBLE_EQ(clipped.seconds, 7 + 1 + 2);
  EXPECT_STREQ(clipped.bound_by, "update, forward");
}

TEST(Simulate, BytesOfTheUpdate) {
  EXPECT_EQ(update_bytes_per_parameter(DType::BF16, DType::BF16), 26);
  EXPECT_EQ(update_bytes_per_parameter(DType::F32, DType::F32), 28);
  EXPECT_EQ(update_bytes_per_parameter(DType::F16, DType::F16), 28);
}

Machine random_machine(uint64_t seed) {
  std::mt19937_64 rng(seed);
  const auto rate = [&](double around) {
    return around * std::exp2(static_cast<double>(rng() % 9) - 4);
  };
  return {.flops_per_s = rate(500),
          .device_bytes_per_s = rng() % 2 ? 0 : rate(1e6),
          .load_bytes_per_s = rate(kChunk),
          .store_bytes_per_s = rate(kChunk),
          .update_bytes_per_s = rate(13 * kChunk)};
}

TEST(Simulate, NoPlanIsFasterThanItsBound) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Case c = test::make_any_case(seed);
    const Machine machine = random_machine(seed);
    const uint32_t smallest = test::smallest_blocks(c);
    for (uint32_t more : {0, 1, 3, 10, 40}) {
      for (bool clipped : {false, true}) {
        const Plan plan = test::plan_case(c, smallest + more, clipped).plan;
        const Bound bound = lower_bound(c.trace, c.layout, plan, machine, clipped);
        const Simulation s = simulate(plan, c.trace, c.layout, machine);
        EXPECT_LE(bound.seconds, s.seconds * (1 + 1e-12)) << seed << ' ' << more << ' ' << clipped;
        EXPECT_GT(bound.seconds, 0);
        EXPECT_GE(bound.seconds,
                  std::max({bound.compute_s, bound.load_s, bound.store_s, bound.update_s}));
      }
    }
  }
}

TEST(Simulate, OperationsKeepTheirOrder) {
  const Case c = test::make_any_case(8);
  const Plan plan = test::plan_case(c, test::smallest_blocks(c) + 1, false).plan;
  const Simulation s = simulate(plan, c.trace, c.layout, random_machine(8));
  double stream_end[kNumStreamKinds] = {};
  for (uint32_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    for (uint32_t w : plan.waits_of(op)) EXPECT_GE(s.ops[i].start_s, s.ops[w].end_s);
    const bool gives_block =
        op.stream == StreamKind::Load && !(op.kind == OpKind::Move && op.from == Tier::Host);
    if (gives_block) continue;
    EXPECT_GE(s.ops[i].start_s, stream_end[static_cast<int>(op.stream)]);
    stream_end[static_cast<int>(op.stream)] = s.ops[i].end_s;
  }
}

TEST(Simulate, MoreBandwidthIsNeverSlower) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Case c = test::make_any_case(seed);
    const Plan plan = test::plan_case(c, test::smallest_blocks(c) + seed % 4, seed % 2).plan;
    const Machine machine = random_machine(seed);
    const double seconds = simulate(plan, c.trace, c.layout, machine).seconds;
    for (double Machine::*rate : {&Machine::flops_per_s, &Machine::load_bytes_per_s,
                                  &Machine::store_bytes_per_s, &Machine::update_bytes_per_s}) {
      Machine faster = machine;
      faster.*rate *= 1.5;
      EXPECT_LE(simulate(plan, c.trace, c.layout, faster).seconds, seconds * (1 + 1e-12));
    }
  }
}

// ---- Shared cores ----

double update_seconds(const Simulation& s, const Plan& plan) {
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    if (plan.ops[i].kind == OpKind::Update) return s.ops[i].end_s - s.ops[i].start_s;
  }
  return -1;
}

TEST(Simulate, ComputeAndUpdateShareTheCores) {
  // The weights of chunk 0 wait for its update; those of chunk 1 do not wait for any.
  const Case c = test::make_case_from_text("r1 r1 w0", 2, 65536, 2);
  const Plan plan = test::plan_case(c, 6, true, true).plan;
  Machine machine{.flops_per_s = 100, .update_bytes_per_s = 65536 * 26.0 / 4};
  // Without shared cores, the update of chunk 0 takes 4 s and overlaps with two calls of 1 s. The
  // third call runs after the update.
  EXPECT_DOUBLE_EQ(simulate(plan, c.trace, c.layout, machine).seconds, 4 + 1);
  machine.shared_cores = true;
  // With shared cores, the two calls take 2 s each. After them, 2 s of the update are left, and
  // then the third call takes 1 s.
  const Simulation s = simulate(plan, c.trace, c.layout, machine);
  EXPECT_DOUBLE_EQ(s.seconds, 4 + 2 + 1);
  EXPECT_DOUBLE_EQ(s.stall_s, 2);
  EXPECT_DOUBLE_EQ(update_seconds(s, plan), 6);
  EXPECT_DOUBLE_EQ(s.stream_busy[StreamKind::Compute], 3);
  machine.emulate_compute = true;  // calls use no core
  EXPECT_DOUBLE_EQ(simulate(plan, c.trace, c.layout, machine).seconds, 4 + 1);
}

TEST(Simulate, CopiesUsePartOfTheCores) {
  const Case c = test::make_case_from_text("r0 r1", 2, 65536, 2);
  const Plan plan = evaluation_plan(c, 2);
  // A load takes 2 s, and 1 s of all cores. A call takes 1 s.
  Machine machine{.flops_per_s = 100,
                  .load_bytes_per_s = kChunk / 2,
                  .shared_cores = true,
                  .copy_bytes_per_s = kChunk};
  // The first call has half of the cores while the second load runs: both end at the same time.
  EXPECT_DOUBLE_EQ(simulate(plan, c.trace, c.layout, machine).seconds, 2 + 2 + 1);
  machine.copy_bytes_per_s = 0;
  EXPECT_DOUBLE_EQ(simulate(plan, c.trace, c.layout, machine).seconds, 2 + 2 + 1);
  machine.flops_per_s = 50;  // a call takes 2 s; if copies use no core, it is not slower
  EXPECT_DOUBLE_EQ(simulate(plan, c.trace, c.layout, machine).seconds, 2 + 2 + 2);
  machine.copy_bytes_per_s = kChunk;
  EXPECT_DOUBLE_EQ(simulate(plan, c.trace, c.layout, machine).seconds, 2 + 2 + 1 + 2);
}

TEST(Simulate, AMemoryCopyIsLimitedByTheCores) {
  const Case c = test::make_case_from_text("r0 r1", 2, 65536, 2);
  // The link has no limit: a copy uses all cores, and nothing else runs at the same time.
  const Machine machine{.flops_per_s = 100, .shared_cores = true, .copy_bytes_per_s = kChunk};
  EXPECT_DOUBLE_EQ(simulate(evaluation_plan(c, 2), c.trace, c.layout, machine).seconds, 2 + 2);
}

/// The times of a plan whose streams do not slow each other down, computed without a clock.
std::vector<OpTime> times_without_sharing(const Plan& plan, const Trace& trace,
                                          const Layout& layout, const Machine& machine) {
  std::vector<OpTime> times(plan.ops.size());
  double free_s[kNumStreamKinds] = {}, copy_thread_s = 0;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    const bool copies = op.kind == OpKind::Move && op.from != Tier::None;
    double start_s =
        op.stream == StreamKind::Load ? copy_thread_s : free_s[static_cast<int>(op.stream)];
    for (uint32_t w : plan.waits_of(op)) start_s = std::max(start_s, times[w].end_s);
    if (op.stream == StreamKind::Load) copy_thread_s = start_s;
    if (copies) start_s = std::max(start_s, free_s[static_cast<int>(op.stream)]);
    Plan alone;
    alone.ops = {op};
    alone.chunks = plan.chunks;
    alone.ops[0].first_wait = alone.ops[0].num_waits = 0;
    const double seconds = simulate(alone, trace, layout, machine).seconds;
    times[i] = {start_s, start_s + seconds};
    if (op.stream != StreamKind::Load || copies)
      free_s[static_cast<int>(op.stream)] = times[i].end_s;
  }
  return times;
}

TEST(Simulate, WithoutSharedCoresNoStreamSlowsAnotherDown) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Case c = test::make_any_case(seed);
    const Plan plan = test::plan_of_any_case(c, seed);
    const Machine machine = random_machine(seed);
    const Simulation s = simulate(plan, c.trace, c.layout, machine);
    const std::vector<OpTime> expected = times_without_sharing(plan, c.trace, c.layout, machine);
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      ASSERT_EQ(s.ops[i].start_s, expected[i].start_s) << seed << ' ' << i;
      ASSERT_EQ(s.ops[i].end_s, expected[i].end_s) << seed << ' ' << i;
    }
  }
}

TEST(Simulate, SharedCoresDoAllWorkAndNoMore) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Case c = test::make_any_case(seed);
    const Plan plan = test::plan_of_any_case(c, seed);
    Machine machine = random_machine(seed);
    const double alone_s = simulate(plan, c.trace, c.layout, machine).seconds;
    machine.shared_cores = true;
    machine.copy_bytes_per_s = seed % 5 == 0 ? 0 : 3 * machine.load_bytes_per_s;
    const Simulation s = simulate(plan, c.trace, c.layout, machine);
    EXPECT_GE(s.seconds, alone_s * (1 - 1e-12)) << seed;
    const double update_s = s.stream_busy[StreamKind::Update];
    const double copied = static_cast<double>(plan.loaded_bytes + plan.stored_bytes);
    const double copies_s = machine.copy_bytes_per_s > 0 ? copied / machine.copy_bytes_per_s : 0;
    const double work_s = s.stream_busy[StreamKind::Compute] + update_s + copies_s;
    EXPECT_GE(s.seconds, work_s * (1 - 1e-12)) << seed;
    const Bound bound = lower_bound(c.trace, c.layout, plan, machine, seed % 2);
    EXPECT_LE(bound.seconds, s.seconds * (1 + 1e-9)) << seed;
  }
}

TEST(Simulate, KindsOfArithmeticHaveTheirOwnRates) {
  Case c = test::make_case_from_text("r0", 1, 65536, 1);
  c.trace.calls[0].cost.vector_flops = 40;
  c.trace.calls[0].cost.attention_flops = 20;
  c.trace.calls[0].cost.num_kernels = 3;
  const Plan plan = evaluation_plan(c, 1);
  Machine machine{.flops_per_s = 100};
  EXPECT_DOUBLE_EQ(simulate(plan, c.trace, c.layout, machine).seconds, 1);
  machine.vector_flops_per_s = 20;
  EXPECT_DOUBLE_EQ(simulate(plan, c.trace, c.layout, machine).seconds, 0.6 + 2);
  machine.attention_flops_per_s = 5;
  EXPECT_DOUBLE_EQ(simulate(plan, c.trace, c.layout, machine).seconds, 0.4 + 4 + 2);
  machine.kernel_s = 0.5;
  EXPECT_DOUBLE_EQ(simulate(plan, c.trace, c.layout, machine).seconds, 0.4 + 4 + 2 + 1.5);
  machine.kernel_s = 0;
  // A part of a kind has the rate of its kind until it has one of its own.
  c.trace.calls[0].cost.narrow_flops = 10;
  c.trace.calls[0].cost.attention_backward_flops = 15;
  EXPECT_DOUBLE_EQ(simulate(plan, c.trace, c.layout, machine).seconds, 0.4 + 4 + 2);
  machine.narrow_flops_per_s = 50;
  EXPECT_DOUBLE_EQ(simulate(plan, c.trace, c.layout, machine).seconds, 0.3 + 0.2 + 4 + 2);
  machine.attention_backward_flops_per_s = 3;
  EXPECT_DOUBLE_EQ(simulate(plan, c.trace, c.layout, machine).seconds, 0.3 + 0.2 + 1 + 5 + 2);
}

}  // namespace
}  // namespace ebb

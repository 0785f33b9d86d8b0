#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "scheduler/plan/late_stores.h"
#include "scheduler/plan/validate.h"
#include "tests/scheduler/timed_plans.h"

namespace ebb {
namespace {

constexpr uint32_t kAhead = 2;

/// The most stores that are listed before a call and start after it.
size_t most_ahead(const Plan& plan, std::span<const OpTime> times) {
  size_t most = 0;
  std::vector<double> starts;
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    if (plan.ops[i].stream == StreamKind::Store) starts.push_back(times[i].start_s);
    if (plan.ops[i].kind != OpKind::Call) continue;
    const auto is_later = [&](double start_s) { return start_s > times[i].start_s; };
    most = std::max(most, static_cast<size_t>(std::ranges::count_if(starts, is_later)));
  }
  return most;
}

/// The times of the operations of each stream, in order.
std::array<std::vector<std::pair<double, double>>, kNumStreamKinds> times_by_stream(
    const Plan& plan, std::span<const OpTime> times) {
  std::array<std::vector<std::pair<double, double>>, kNumStreamKinds> by_stream;
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    by_stream[static_cast<int>(plan.ops[i].stream)].emplace_back(times[i].start_s, times[i].end_s);
  }
  return by_stream;
}

/// Of each store: its start, and the start of the last call before it (0: no call), with their
/// number.
struct ListedStore {
  double start_s, call_s;
  size_t num_calls;
};
std::vector<ListedStore> listed_stores(const Plan& plan, std::span<const OpTime> times) {
  std::vector<ListedStore> stores;
  double call_s = 0;
  size_t num_calls = 0;
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    if (plan.ops[i].kind == OpKind::Call) {
      call_s = times[i].start_s;
      ++num_calls;
    }
    if (plan.ops[i].stream == StreamKind::Store) {
      stores.push_back({times[i].start_s, call_s, num_calls});
    }
  }
  return stores;
}

TEST(LateStores, FewAreListedBeforeTheyStart) {
  size_t most_before = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const test::Case c = test::make_any_case(seed);
    const uint32_t num_blocks = test::smallest_blocks(c) + seed % 4;
    const test::Planned planned = test::plan_case(c, num_blocks, seed % 2 == 0, seed % 3 == 0);
    const Simulation before = simulate(planned.plan, c.trace, c.layout, test::kSlowMachine);
    const Plan plan = with_late_stores(planned.plan, before.ops, kAhead);
    const Simulation after = simulate(plan, c.trace, c.layout, test::kSlowMachine);
    EXPECT_TRUE(times_by_stream(plan, after.ops) == times_by_stream(planned.plan, before.ops));
    const auto listed = listed_stores(plan, after.ops);
    const auto first = listed_stores(planned.plan, before.ops);
    for (size_t k = kAhead; k < listed.size(); ++k) {  // none is listed later than it must be
      const bool is_moved = listed[k].num_calls > first[k].num_calls;
      EXPECT_TRUE(!is_moved || listed[k].call_s < listed[k - kAhead].start_s);
    }
    EXPECT_LE(most_ahead(plan, after.ops), kAhead);
    most_before = std::max(most_before, most_ahead(planned.plan, before.ops));
    for (const std::string& m : validate(plan, c.trace, c.layout, planned.options)) {
      ADD_FAILURE() << m;
    }
  }
  EXPECT_GT(most_before, 2 * kAhead) << "the cases have few stores";
}

TEST(LateStores, WhatWaitsForAStoreFollowsIt) {
  using namespace test;
  // Calls take 1 s, stores 2 s. The third store starts at 5 s, and the first at 1 s.
  const WrittenPlan written{
      {kRun, {0, 1}},       {kStore, {1, 3}, {0}},   {kStore, {3, 5}, {0}},  {kStore, {5, 7}, {0}},
      {kLoad, {7, 8}, {3}}, {kRun, {1, 2}},          {kUpdate, {7, 9}, {3}}, {kRun, {2, 3}},
      {kRun, {3, 4}, {}},   {kNorm, {9, 9}, {3, 6}},
  };
  const Plan plan = with_late_stores(written.plan, written.times, 1);
  std::vector<StreamKind> streams;
  for (const Op& op : plan.ops) streams.push_back(op.stream);
  using enum StreamKind;
  // The second store comes before the call at 1 s, when the first starts; the third before that at
  // 3 s, with the load and the update.
  EXPECT_EQ(streams, (std::vector{Compute, Store, Store, Compute, Compute, Store, Load, Update,
                                  Compute, Update}));
  const Op& norm = plan.ops[9];
  EXPECT_EQ(norm.kind, OpKind::Norm);
  EXPECT_EQ(plan.waits_of(norm)[0], OpIndex(5));
  EXPECT_EQ(plan.waits_of(norm)[1], OpIndex(7));
}

}  // namespace
}  // namespace ebb

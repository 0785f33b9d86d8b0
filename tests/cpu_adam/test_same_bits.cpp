// AdamW gives the same bits on each instruction set, for each number of threads and NUMA nodes, and
// for each way to split the elements into calls.
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "cpu_adam/adamw_kernel.h"
#include "system/thread_team.h"
#include "tests/cpu_adam/state.h"

namespace ebb::test::tests_of_same_bits {
namespace {

constexpr int64_t kCount = 2 * 65536 + 41;
constexpr int kSteps = 3;
#ifdef HWY_SSE2  // Highway 1.0.3 has scalar code instead
constexpr int64_t kLeast = HWY_SSE2;
#else
constexpr int64_t kLeast = HWY_SCALAR;
#endif

AdamWStep step_at(int64_t t) {
  return {.learning_rate = 3e-3, .adam = {}, .t = t, .gradient_scale = 0.37f};
}

/// The bits after kSteps. Each step is split into calls at `cuts` (ascending, between 0 and n).
std::vector<std::byte> train(int64_t n, Types types, ThreadTeam& team,
                             std::vector<int64_t> cuts = {}) {
  State state(n, types);
  state.set_weights(1);
  cuts.push_back(n);
  for (int64_t t = 1; t <= kSteps; ++t) {
    state.set_gradients(static_cast<uint64_t>(10 + t));
    int64_t first = 0;
    for (int64_t cut : cuts) {
      adamw_update(team, state.planes().from(first), cut - first, step_at(t), 1, 1);
      first = cut;
    }
  }
  EXPECT_TRUE(state.intact());
  return state.bits();
}

std::vector<std::byte> train(int64_t n, Types types, int num_threads,
                             const std::vector<int64_t>& cuts = {}) {
  ThreadTeam team(num_threads);
  return train(n, types, team, cuts);
}

class SameBits : public testing::TestWithParam<Types> {};
INSTANTIATE_TEST_SUITE_P(Types, SameBits, testing::ValuesIn(kAllTypes),
                         [](const auto& info) { return name_of_types(info.param); });

TEST_P(SameBits, OnEveryInstructionSet) {
  const std::vector<std::byte> expected = train(kCount, GetParam(), 1);
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  // Each instruction set that this CPU has and that Ebb compiles for is compared, including the
  // baseline of x86-64. Newer versions of Highway have more instruction sets than AVX3.
  int64_t compared = 0;
  for (int64_t target : targets) compared |= target;
  constexpr int64_t kAll = HWY_AVX3 | HWY_AVX2 | kLeast;
  EXPECT_EQ(compared & kAll, kAll & hwy::SupportedTargets());
  EXPECT_TRUE(compared & kLeast);
  for (int64_t target : targets) {
    const OnlyTarget only(target);
    EXPECT_TRUE(train(kCount, GetParam(), 1) == expected) << hwy::TargetName(target);
  }
}

TEST_P(SameBits, OnEveryNumberOfThreads) {
  // By default oneTBB starts no more threads than there are cores.
  const tbb::global_control threads_allowed(tbb::global_control::max_allowed_parallelism, 8);
  const std::vector<std::byte> expected = train(kCount, GetParam(), 1);
  for (int threads = 2; threads <= 8; ++threads) {
    EXPECT_TRUE(train(kCount, GetParam(), threads) == expected) << threads << " threads";
  }
}

TEST_P(SameBits, OnEveryNumberOfNodes) {
  const tbb::global_control threads_allowed(tbb::global_control::max_allowed_parallelism, 8);
  const std::vector<std::byte> expected = train(kCount, GetParam(), 1);
  for (const std::vector<int>& threads : {std::vector{1, 1}, {3, 5}, {2, 2, 2}}) {
    std::vector<NodeThreads> nodes;
    for (int count : threads) nodes.push_back({.num_threads = count});
    ThreadTeam team(nodes);
    EXPECT_TRUE(train(kCount, GetParam(), team) == expected) << threads.size() << " nodes";
  }
}

TEST_P(SameBits, AfterPlanesMoveToNodes) {
  ThreadTeam team(std::vector<NodeThreads>(2));
  State state(kCount, GetParam());
  state.set_weights(1);
  state.set_gradients(2);
  const std::vector<std::byte> before = state.bits();
  move_planes_to_nodes(team, state.planes(), kCount);
  EXPECT_TRUE(state.bits() == before);
}

TEST_P(SameBits, ForEachSplitIntoCalls) {
  const std::vector<std::byte> expected = train(kCount, GetParam(), 2);
  std::mt19937_64 random(7);
  for (int round = 0; round < 5; ++round) {
    std::vector<int64_t> cuts;
    for (int i = 0; i < 40; ++i) cuts.push_back(static_cast<int64_t>(random() % kCount));
    std::sort(cuts.begin(), cuts.end());
    EXPECT_TRUE(train(kCount, GetParam(), 2, cuts) == expected) << "round " << round;
  }
}

TEST(SameBits, MastersAreTheSameForAllWeightTypes) {
  for (DType gradient : {DType::F32, DType::BF16, DType::F16}) {
    State split(1009, {DType::BF16, gradient}), whole(1009, {DType::F32, gradient});
    State half(1009, {DType::F16, gradient});
    ThreadTeam team(2);
    for (State* state : {&split, &whole, &half}) {
      state->set_weights(1);
      for (int64_t t = 1; t <= 20; ++t) {
        state->set_gradients(static_cast<uint64_t>(t));
        adamw_update(team, state->planes(), 1009, step_at(t), 1, 1);
      }
    }
    for (State* state : {&split, &half}) {
      EXPECT_EQ(state->masters(), whole.masters());
      EXPECT_EQ(state->momenta(), whole.momenta());
      EXPECT_EQ(state->variances(), whole.variances());
    }
  }
}

TEST(SameBits, StateIsTheSameForAllGradientTypes) {
  for (DType weight : {DType::F32, DType::BF16, DType::F16}) {
    const std::vector<std::byte> expected = train(1009, {weight, DType::F32}, 1);
    for (DType gradient : {DType::BF16, DType::F16}) {
      EXPECT_TRUE(train(1009, {weight, gradient}, 1) == expected) << name_of(gradient);
    }
  }
}

/// Sets masters, momenta, variances and gradients to denormals.
void set_denormal(State& state) {
  const Planes planes = state.planes();
  const NamedPlanes at = named(planes);
  std::vector<float> masters(static_cast<size_t>(state.n()));
  for (int64_t i = 0; i < state.n(); ++i) {
    const auto bits = static_cast<uint32_t>(i + 1) * 64u % 0x800000u;
    masters[static_cast<size_t>(i)] = std::bit_cast<float>(bits);
    at.momentum[i] = std::bit_cast<float>(bits | 0x80000000u);
    at.variance[i] = std::bit_cast<float>(bits);
    const_cast<BF16*>(reinterpret_cast<const BF16*>(planes.gradient))[i] =
        BF16::from_bits(static_cast<uint16_t>(bits >> 16));
  }
  write_masters(planes, masters);
}

bool all_zero(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
}

TEST(Denormals, AreFlushedOnEveryInstructionSet) {
  constexpr int64_t kSmall = 1009;
  ThreadTeam team(1);
  for (DType weight : {DType::F32, DType::BF16, DType::F16}) {
    std::vector<std::byte> first;
    for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
      const OnlyTarget only(target);
      State state(kSmall, {weight, DType::BF16});
      set_denormal(state);
      adamw_update(team, state.planes(), kSmall, step_at(5), 1, 1);
      EXPECT_TRUE(all_zero(state.masters()) && all_zero(state.momenta()) &&
                  all_zero(state.variances()))
          << hwy::TargetName(target);
      if (first.empty()) first = state.bits();
      EXPECT_TRUE(state.bits() == first) << hwy::TargetName(target);
    }
  }
}

// With zero gradients the momenta and variances shrink to zero. They are never denormal, and become
// zero in the same step on each instruction set.
TEST(Denormals, AreNeverMadeByDecay) {
  constexpr int64_t kSmall = 67;
  ThreadTeam team(2);
  AdamWStep step{.learning_rate = 1e-3, .adam = {.beta1 = 0.5, .beta2 = 0.75}};
  std::vector<std::byte> first;
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnlyTarget only(target);
    State state(kSmall, {DType::BF16, DType::F16});
    state.set_weights(1);
    for (int64_t i = 0; i < kSmall; ++i) {
      named(state.planes()).momentum[i] = std::ldexp(1.0f + static_cast<float>(i) / 67, -120);
      named(state.planes()).variance[i] = std::ldexp(1.0f + static_cast<float>(i) / 67, -124);
    }
    std::vector<std::byte> history;
    for (step.t = 5; step.t < 25; ++step.t) {
      adamw_update(team, state.planes(), kSmall, step, 1, 1);
      for (const auto& moments : {state.momenta(), state.variances()}) {
        for (float m : moments) EXPECT_NE(std::fpclassify(m), FP_SUBNORMAL);
      }
      const std::vector<std::byte> bits = state.bits();
      history.insert(history.end(), bits.begin(), bits.end());
    }
    EXPECT_TRUE(all_zero(state.momenta()) && all_zero(state.variances()));
    if (first.empty()) first = history;
    EXPECT_TRUE(history == first) << hwy::TargetName(target);
  }
}

// The thread team sets the flush mode. Without a team the same update keeps denormals.
TEST(Denormals, AreKeptWithoutAThreadTeam) {
  State state(64, {DType::F32, DType::BF16});
  set_denormal(state);
  adamw_update_range(state.planes(), 64, adamw_coefficients(step_at(5), 1, 1));
  EXPECT_FALSE(all_zero(state.variances()));
}

}  // namespace
}  // namespace ebb::test::tests_of_same_bits

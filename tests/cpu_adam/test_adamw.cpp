// AdamW compared with fp64, and the mistakes that this comparison must find.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "device/errors.h"
#include "device/planes.h"
#include "system/thread_team.h"
#include "tests/cpu_adam/reference.h"
#include "tests/cpu_adam/state.h"

namespace ebb::test::tests_of_adamw {
namespace {

constexpr int kSteps = 12;
constexpr double kDecayFactor = 1;
constexpr double kRateFactor = 0.75;

// The gradient scale is no power of two, and the learning rate changes in each step.
AdamWStep step_at(int64_t t) {
  return {.learning_rate = 1e-2 / static_cast<double>(t),
          .adam = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-6, .weight_decay = 0.1},
          .t = t,
          .gradient_scale = 0.37f};
}

enum class StateBug { None, DroppedLow, LostStep };

/// Trains the state and the reference for kSteps. Returns the largest error / bound.
double worst_ratio(int64_t n, Types types, Bug bug = Bug::None,
                   StateBug state_bug = StateBug::None) {
  ThreadTeam team(2);
  State state(n, types);
  state.set_weights(1);
  Reference reference(state.masters(), bug);
  for (int64_t t = 1; t <= kSteps; ++t) {
    const auto seed = static_cast<uint64_t>(100 + t);
    state.set_gradients(seed);
    if (state_bug != StateBug::LostStep || t != kSteps / 2) {
      adamw_update(team, state.planes(), n, step_at(t), kDecayFactor, kRateFactor);
    }
    if (state_bug == StateBug::DroppedLow) std::fill_n(named(state.planes()).low, n, int16_t{0});
    reference.update(make_gradients(n, seed), step_at(t), kDecayFactor, kRateFactor);
  }
  EXPECT_TRUE(state.intact());
  return reference.worst_ratio(state.masters(), state.momenta(), state.variances());
}

class AdamWTypes : public testing::TestWithParam<Types> {};
INSTANTIATE_TEST_SUITE_P(Types, AdamWTypes, testing::ValuesIn(kAllTypes),
                         [](const auto& info) { return name_of_types(info.param); });

/// Two ranges with a gap: the other copy gets the old weights there.
TEST_P(AdamWTypes, AnotherCopyOfTheWeightsGetsTheSameBits) {
  ThreadTeam team(2);
  const int64_t n = 2 * kUpdateTaskElements + 5;
  const AdamWRange ranges[] = {{.first = 3, .count = 1000}, {.first = 1200, .count = n - 1200}};
  State in_place(n, GetParam()), copied(n, GetParam());
  Guarded other(n, size_of(GetParam().weight));
  for (State* const state : {&in_place, &copied}) {
    state->set_weights(1);
    state->set_gradients(2);
  }
  const auto weights_of = [&](State& state) {
    const auto* const weights = state.planes()[kWeightPlane];
    return std::vector(weights, weights + n * static_cast<int64_t>(size_of(GetParam().weight)));
  };
  const std::vector<std::byte> old = weights_of(copied);
  adamw_update(team, in_place.planes(), n, ranges, step_at(1));
  adamw_update(team, copied.planes(), other.data(), n, ranges, step_at(1));
  EXPECT_EQ(weights_of(copied), old);
  EXPECT_EQ(other.content(), weights_of(in_place));
  EXPECT_NE(weights_of(in_place), old);
  EXPECT_EQ(copied.momenta(), in_place.momenta());
  EXPECT_EQ(copied.variances(), in_place.variances());
  EXPECT_TRUE(other.intact() && copied.intact());
}

TEST_P(AdamWTypes, StaysWithinTheRoundingBound) {
  for (int64_t n : {1, 3, 4, 15, 16, 17, 31, 32, 33, 63, 65, 97, 1009, 65535, 65536, 65537}) {
    EXPECT_LE(worst_ratio(n, GetParam()), 1.0) << "n = " << n;
  }
}

// A bound that is much larger than the errors would not find mistakes.
TEST_P(AdamWTypes, ErrorsComeNearTheBound) { EXPECT_GT(worst_ratio(1009, GetParam()), 0.1); }

TEST_P(AdamWTypes, TheComparisonFindsEachMistake) {
  for (Bug bug : {Bug::WrongBeta1, Bug::WrongBeta2, Bug::NoFirstBiasCorrection,
                  Bug::NoSecondBiasCorrection, Bug::DecayAfterUpdate, Bug::CoupledDecay,
                  Bug::EpsilonBeforeCorrection, Bug::NoGradientScale, Bug::StepOffByOne}) {
    EXPECT_GT(worst_ratio(1009, GetParam(), bug), 1.0) << "bug " << static_cast<int>(bug);
  }
  EXPECT_GT(worst_ratio(1009, GetParam(), Bug::None, StateBug::LostStep), 1.0);
  if (GetParam().weight == DType::BF16) {
    EXPECT_GT(worst_ratio(1009, GetParam(), Bug::None, StateBug::DroppedLow), 1.0);
  }
}

TEST_P(AdamWTypes, AnUpdateOfNoElementsIsAllowed) {
  ThreadTeam team(2);
  adamw_update(team, Planes{}, 0, step_at(1), 1, 1);
  State state(0, GetParam());
  adamw_update(team, state.planes(), 0, step_at(1), 1, 1);
  EXPECT_TRUE(state.intact());
}

TEST_P(AdamWTypes, AZeroGradientOnANewStateOnlyDecaysWeights) {
  ThreadTeam team(1);
  State state(100, GetParam());
  state.set_weights(3);
  const std::vector<float> before = state.masters();
  adamw_update(team, state.planes(), 100, step_at(1), 1, 1);
  const float rate = static_cast<float>(1e-2 * 0.1);
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(state.masters()[i], before[i] - rate * before[i]);
  adamw_update(team, state.planes(), 100, step_at(1), 0, 1);
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(state.masters()[i], before[i] - rate * before[i]);
}

TEST_P(AdamWTypes, NanStaysInItsElement) {
  ThreadTeam team(1);
  constexpr int64_t kCount = 67;
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), INFINITY, -INFINITY}) {
    for (int64_t at : {0, 31, 40, 66}) {
      State good(kCount, GetParam()), hurt(kCount, GetParam());
      for (State* state : {&good, &hurt}) {
        state->set_weights(5);
        state->set_gradients(6);
      }
      hurt.set_gradient(at, bad);
      for (State* state : {&good, &hurt}) {
        adamw_update(team, state->planes(), kCount, step_at(1), 1, 1);
      }
      const std::vector<float> expected = good.masters(), actual = hurt.masters();
      for (int64_t i = 0; i < kCount; ++i) {
        const auto index = static_cast<size_t>(i);
        if (i == at) {
          EXPECT_TRUE(std::isnan(actual[index])) << i;
        } else {
          EXPECT_EQ(actual[index], expected[index]) << i;
        }
      }
    }
  }
}

/// Memory between two pages without access, so that a read outside a plane faults.
class Fenced {
 public:
  Fenced() : page_(static_cast<size_t>(getpagesize())) {
    base_ = static_cast<std::byte*>(
        mmap(nullptr, 3 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_, page_, PROT_NONE);
    mprotect(base_ + 2 * page_, page_, PROT_NONE);
  }
  ~Fenced() { munmap(base_, 3 * page_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  std::byte* address(size_t bytes, bool at_end) {
    return base_ + page_ + (at_end ? page_ - bytes : 0);
  }

 private:
  size_t page_;
  std::byte* base_;
};

TEST_P(AdamWTypes, DoesNotAccessMemoryOutsideThePlanes) {
  ThreadTeam team(1);
  const std::span<const PlaneInfo> infos = state_planes(GetParam().weight);
  Fenced memory[kMostPlanes], gradient;
  for (bool at_end : {false, true}) {
    for (int64_t n = 1; n <= 70; ++n) {
      const auto count = static_cast<size_t>(n);
      Planes planes{.gradient = gradient.address(count * size_of(GetParam().gradient), at_end),
                    .weight_dtype = GetParam().weight,
                    .gradient_dtype = GetParam().gradient};
      for (size_t i = 0; i < infos.size(); ++i) {
        planes[i] = memory[i].address(infos[i].bytes(count), at_end);
      }
      adamw_update(team, planes, n, step_at(1), 1, 1);
      std::vector<float> masters(count);
      read_masters(planes, masters);
      write_masters(planes, masters);
    }
  }
}

TEST(AdamW, RejectsInvalidArguments) {
  ThreadTeam team(1);
  State state(8, {DType::BF16, DType::BF16});
  const Planes good = state.planes();
  const auto update = [&](Planes planes, AdamWStep step) {
    adamw_update(team, planes, 8, step, 1, 1);
  };
  EXPECT_THROW(update(good, step_at(0)), LogicError);
  EXPECT_THROW(adamw_update(team, good, -1, step_at(1), 1, 1), LogicError);
  for (auto spoil : std::initializer_list<void (*)(Planes&)>{
           [](Planes& p) { p[0] = nullptr; }, [](Planes& p) { p[1] = nullptr; },
           [](Planes& p) { p[2] = nullptr; }, [](Planes& p) { p[3] = nullptr; },
           [](Planes& p) { p[4] = p[3]; }, [](Planes& p) { p.gradient = nullptr; },
           [](Planes& p) { p.weight_dtype = DType::F32; },
           [](Planes& p) { p.weight_dtype = DType::F64; },
           [](Planes& p) { p.gradient_dtype = DType::I32; }}) {
    Planes planes = good;
    spoil(planes);
    EXPECT_THROW(update(planes, step_at(1)), LogicError);
  }
  EXPECT_NO_THROW(update(good, step_at(1)));
  const auto update_ranges = [&](std::vector<AdamWRange> ranges) {
    adamw_update(team, good, 8, ranges, step_at(1));
  };
  EXPECT_THROW(update_ranges({{.first = 0, .count = 9}}), LogicError);
  EXPECT_THROW(update_ranges({{.first = -1, .count = 2}}), LogicError);
  EXPECT_THROW(update_ranges({{.first = 2, .count = -1}}), LogicError);
  EXPECT_THROW(update_ranges({{.first = 0, .count = 3}, {.first = 2, .count = 3}}), LogicError);
  EXPECT_NO_THROW(update_ranges({{.first = 0, .count = 3}, {.first = 3, .count = 5}}));
}

// A chunk has parameters with different factors, gaps, and parameters in several tasks.
TEST_P(AdamWTypes, AnUpdateOfRangesEqualsAnUpdateOfEachRange) {
  constexpr int64_t kCount = 2 * kUpdateTaskElements + 100;
  const std::vector<AdamWRange> ranges = {
      {.first = 1, .count = 6, .decay_factor = 0},
      {.first = 7, .count = 0},
      {.first = 7, .count = 1000, .learning_rate_factor = 0.5},
      {.first = 2000, .count = 2 * kUpdateTaskElements - 1999, .decay_factor = 0.25},
      {.first = 2 * kUpdateTaskElements + 1, .count = 90}};
  ThreadTeam team(2);
  State together(kCount, GetParam()), apart(kCount, GetParam());
  for (State* state : {&together, &apart}) {
    state->set_weights(1);
    state->set_gradients(2);
  }
  adamw_update(team, together.planes(), kCount, ranges, step_at(3));
  for (const AdamWRange& range : ranges) {
    adamw_update(team, apart.planes().from(range.first), range.count, step_at(3),
                 range.decay_factor, range.learning_rate_factor);
  }
  EXPECT_TRUE(together.bits() == apart.bits());
  adamw_update(team, together.planes(), kCount, std::span<const AdamWRange>(), step_at(3));
  EXPECT_TRUE(together.bits() == apart.bits());
}

// With beta1 = 0 the momentum is the gradient, so each fp16 must be converted exactly.
TEST(AdamW, ConvertsEachFp16GradientExactly) {
  constexpr int64_t kCount = 65536;
  ThreadTeam team(2);
  AdamWStep step = step_at(1);
  step.adam.beta1 = 0;
  step.gradient_scale = 1;
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnlyTarget only(target);
    State state(kCount, {DType::BF16, DType::F16});
    const auto gradient_at = [](int64_t i) { return F16::from_bits(static_cast<uint16_t>(i)); };
    for (int64_t i = 0; i < kCount; ++i) state.set_gradient(i, gradient_at(i));
    adamw_update(team, state.planes(), kCount, step, 1, 1);
    const std::vector<float> momenta = state.momenta();
    int64_t num_wrong = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      const float actual = momenta[static_cast<size_t>(i)], expected = gradient_at(i);
      num_wrong += std::isnan(expected) ? !std::isnan(actual) : actual != expected;
    }
    EXPECT_EQ(num_wrong, 0) << hwy::TargetName(target);
  }
}

TEST(AdamW, CoefficientsFollowTheDefinition) {
  const AdamWStep step{.learning_rate = 3e-4,
                       .adam = {.beta1 = 0.9, .beta2 = 0.999, .weight_decay = 0.1},
                       .t = 1000};
  const AdamWCoefficients c = adamw_coefficients(step, 1, 0.5);
  EXPECT_EQ(c.decay_rate, static_cast<float>(1.5e-4 * 0.1));
  EXPECT_FLOAT_EQ(c.step_size, static_cast<float>(1.5e-4 / (1 - std::pow(0.9, 1000))));
  EXPECT_FLOAT_EQ(c.v_correction, static_cast<float>(1 / std::sqrt(1 - std::pow(0.999, 1000))));
  EXPECT_EQ(c.one_minus_beta2, static_cast<float>(1 - 0.999));
  EXPECT_EQ(adamw_coefficients(step, 0, 1).decay_rate, 0.0f);
}

// An fp16 weight is its master, rounded once, on each instruction set.
TEST(AdamW, Fp16WeightsAreRoundedMasters) {
  constexpr int64_t kCount = 1009;
  ThreadTeam team(2);
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnlyTarget only(target);
    State state(kCount, {DType::F16, DType::F16});
    state.set_weights(1);
    state.set_gradients(2);
    std::vector<float> masters = state.masters();
    masters[3] = 65519.0f, masters[4] = 65520.0f, masters[5] = 1e-7f, masters[6] = 7e4f;
    write_masters(state.planes(), masters);
    for (int64_t t = 1; t <= 3; ++t) {
      const auto* weights = reinterpret_cast<const F16*>(named(state.planes()).weight);
      masters = state.masters();
      for (size_t i = 0; i < masters.size(); ++i) {
        ASSERT_EQ(weights[i].bits, F16(masters[i]).bits) << i << hwy::TargetName(target);
      }
      adamw_update(team, state.planes(), kCount, step_at(t), 1, 1);
    }
    EXPECT_EQ(reinterpret_cast<const F16*>(named(state.planes()).weight)[6].bits & 0x7c00u,
              0x7c00u);
  }
}

TEST(StatePlanes, TakeTwelveOrFourteenBytesAParameter) {
  for (const DType type : {DType::BF16, DType::F32, DType::F16}) {
    const std::span<const PlaneInfo> infos = state_planes(type);
    const size_t bytes = type == DType::F16 ? 14 : 12;
    EXPECT_EQ(state_bytes(type, 1000), 1000 * bytes);
    EXPECT_EQ(plane_bytes(type, uncopied_planes(type), 1000), 1000 * (bytes - size_of(type)));
    EXPECT_EQ(all_planes(type).count(), infos.size());
    EXPECT_EQ(master_planes(type).count(), type == DType::F32 ? 1u : 2u);
    EXPECT_EQ(std::ranges::count_if(infos, &PlaneInfo::is_copied), 1);
    EXPECT_TRUE(infos[kWeightPlane].is_copied);
    EXPECT_EQ(infos[kWeightPlane].type, type);
    for (const PlaneInfo& plane : infos) {
      EXPECT_EQ(plane.bytes_per_group, size_of(plane.type)) << plane.name;
      EXPECT_EQ(plane.elements_per_group, 1u) << plane.name;
    }
  }
  EXPECT_THROW(state_planes(DType::I32), LogicError);
}

TEST(StatePlanes, AreCountedInGroups) {
  constexpr PlaneInfo kScaled{// a byte for each element, and an fp32 scale for 64 elements
                              .name = "scaled",
                              .type = DType::F32,
                              .bytes_per_group = 68,
                              .elements_per_group = 64};
  EXPECT_EQ(kScaled.bytes(0), 0u);
  EXPECT_EQ(kScaled.bytes(1), 68u);
  EXPECT_EQ(kScaled.bytes(64), 68u);
  EXPECT_EQ(kScaled.bytes(65), 136u);
}

}  // namespace
}  // namespace ebb::test::tests_of_adamw

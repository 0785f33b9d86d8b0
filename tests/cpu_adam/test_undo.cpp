// Rolling back an update restores each bit of the state, for all bit patterns.
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <cmath>
#include <ranges>

#include "device/errors.h"
#include "device/update_sizes.h"
#include "system/thread_team.h"
#include "tests/cpu_adam/undo_cases.h"

namespace ebb::test::tests_of_undo {
namespace {

AdamWStep step_at(int64_t t, float scale = 1) {
  return {.learning_rate = 3e-3, .adam = {.weight_decay = 0.3}, .t = t, .gradient_scale = scale};
}

void fill(State& state, Pattern pattern, uint64_t seed) {
  if (pattern != Pattern::Trained) {
    return fill_with_bits(state.planes(), state.n(), {pattern, seed});
  }
  ThreadTeam team(1);
  state.set_weights(seed);
  for (int64_t t = 1; t <= 5; ++t) {
    state.set_gradients(seed + static_cast<uint64_t>(t));
    adamw_update(team, state.planes(), state.n(), step_at(t), 1, 1);
  }
  state.set_gradients(seed + 6);
}

/// The bits of all values. All NaNs count as the same value.
std::vector<uint32_t> values_of(State& state) {
  std::vector<uint32_t> values;
  for (const auto& plane : {state.masters(), state.momenta(), state.variances()}) {
    for (float x : plane)
      values.push_back(std::isnan(x) ? 0x7fc00000u : std::bit_cast<uint32_t>(x));
  }
  return values;
}

/// Parameters with different factors, gaps, and parameters in several tasks.
std::vector<AdamWRange> ranges_of(int64_t n) {
  if (n < 4096) return {{.first = 0, .count = n}};
  return {{.first = 0, .count = 77, .decay_factor = 0},
          {.first = 128, .count = 1000, .learning_rate_factor = 0.5},
          {.first = 2048, .count = 0},
          {.first = 2048, .count = n - 2048, .decay_factor = 0.25}};
}

/// A state with a bit pattern, a thread team and an undo log.
struct Trial {
  State state;
  std::vector<AdamWRange> ranges;
  ThreadTeam team;
  LogMemory memory;
  UndoLog log;
  std::vector<std::byte> before;

  Trial(Types types, int64_t n, Pattern pattern, uint64_t seed = 1, int threads = 2)
      : Trial(types, n, pattern, seed, threads, undo_log_bytes(n, 3 * n)) {}
  Trial(Types types, int64_t n, Pattern pattern, uint64_t seed, int threads, size_t log_bytes)
      : state(n, types),
        ranges(ranges_of(n)),
        team(threads),
        memory(log_bytes),
        log(memory.span()) {
    fill(state, pattern, seed);
    before = state.bits();
  }
  bool update(const AdamWStep& step = step_at(6)) {
    return update_with_log(team, state.planes(), state.n(), ranges, step, log);
  }
  void undo() { undo_update(team, state.planes(), state.n(), ranges, log); }
  void redo(const AdamWStep& step) {
    redo_update(team, state.planes(), state.n(), ranges, log, step);
  }
  void update_without_log(const AdamWStep& step = step_at(6)) {
    adamw_update(team, state.planes(), state.n(), ranges, step);
  }
  bool is_as_before() const { return state.bits() == before; }
};

class Undo : public testing::TestWithParam<Types> {};
INSTANTIATE_TEST_SUITE_P(All, Undo, testing::ValuesIn(kAllTypes),
                         [](const auto& info) { return name_of_types(info.param); });

constexpr Pattern kPatterns[] = {Pattern::Any, Pattern::Special, Pattern::Trained};

TEST_P(Undo, RestoresEachBitOnEveryInstructionSet) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnlyTarget only(target);
    for (const Pattern pattern : kPatterns) {
      for (int64_t n : {1, 15, 63, 64, 65, 129, 1009, 5000}) {
        Trial trial(GetParam(), n, pattern, static_cast<uint64_t>(n));
        ASSERT_TRUE(trial.update()) << hwy::TargetName(target) << " n = " << n;
        EXPECT_FALSE(trial.is_as_before() && n > 31);
        trial.undo();
        EXPECT_TRUE(trial.is_as_before()) << hwy::TargetName(target) << " n = " << n;
        EXPECT_TRUE(trial.state.intact() && trial.memory.intact());
      }
    }
  }
}

TEST_P(Undo, RestoresEachBitOfSeveralTasks) {
  const tbb::global_control threads_allowed(tbb::global_control::max_allowed_parallelism, 8);
  for (const Pattern pattern : {Pattern::Any, Pattern::Trained}) {
    Trial trial(GetParam(), 2 * kUpdateTaskElements + 41, pattern, 3, 5);
    ASSERT_TRUE(trial.update());
    trial.undo();
    EXPECT_TRUE(trial.is_as_before());
    EXPECT_TRUE(trial.state.intact() && trial.memory.intact());
  }
}

/// Whether each split master that is NaN has a quiet NaN as weight and a low half of 0.
bool nans_are_kept(Trial& trial) {
  const Planes planes = trial.state.planes();
  if (planes.weight_dtype != DType::BF16) return true;
  const NamedPlanes at = named(planes);
  const auto* const weight = reinterpret_cast<const BF16*>(at.weight);
  const auto is_kept = [&](int64_t i) {
    const uint16_t bits = weight[i].bits;
    return (bits & 0x7fff) <= 0x7f80 || ((bits & 0x40) != 0 && at.low[i] == 0);
  };
  return std::ranges::all_of(trial.ranges, [&](const AdamWRange& run) {
    return std::ranges::all_of(std::views::iota(run.first, run.first + run.count), is_kept);
  });
}

TEST_P(Undo, AnUpdateWithALogEqualsOneWithout) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnlyTarget only(target);
    for (const Pattern pattern : kPatterns) {
      Trial logged(GetParam(), 5000, pattern), plain(GetParam(), 5000, pattern);
      ASSERT_TRUE(logged.update());
      plain.update_without_log();
      EXPECT_EQ(values_of(logged.state), values_of(plain.state)) << hwy::TargetName(target);
      EXPECT_TRUE(nans_are_kept(logged) && nans_are_kept(plain));
    }
  }
}

TEST_P(Undo, RedoEqualsAnUpdateOfTheOldState) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnlyTarget only(target);
    for (const Pattern pattern : kPatterns) {
      Trial redone(GetParam(), 5009, pattern), plain(GetParam(), 5009, pattern);
      ASSERT_TRUE(redone.update());
      redone.redo(step_at(6, 0.37f));
      plain.update_without_log(step_at(6, 0.37f));
      EXPECT_EQ(values_of(redone.state), values_of(plain.state)) << hwy::TargetName(target);
      EXPECT_TRUE(redone.state.intact() && redone.memory.intact());
      EXPECT_FALSE(redone.log.is_full());
    }
  }
}

// A log of the size that was used is large enough for each number of threads. With a smaller log
// the update fails and changes nothing.
TEST_P(Undo, AnUpdateThatDoesNotFitChangesNothing) {
  const tbb::global_control threads_allowed(tbb::global_control::max_allowed_parallelism, 8);
  constexpr int64_t kCount = kUpdateTaskElements + 12345;
  for (const Pattern pattern : {Pattern::Any, Pattern::Trained}) {
    Trial large(GetParam(), kCount, pattern);
    ASSERT_TRUE(large.update());
    const size_t used = large.log.used_bytes();
    // A log with one block of outliers for each of the two tasks, for one task, and for none.
    constexpr size_t kBlockBytes = 4096;
    const size_t least = undo_log_bytes(kCount, 0), one_block = least - kBlockBytes,
                 no_block = one_block - kBlockBytes;
    EXPECT_LE(used, undo_log_bytes(kCount, large.log.num_outliers()));
    for (int threads : {1, 5}) {
      Trial exact(GetParam(), kCount, pattern, 1, threads, used);
      EXPECT_TRUE(exact.update());
      for (const size_t bytes :
           {used - 1, (used + least) / 2, least, one_block, no_block, least / 2, size_t{0}}) {
        Trial small(GetParam(), kCount, pattern, 1, threads, bytes);
        EXPECT_FALSE(small.update()) << bytes;
        EXPECT_TRUE(small.is_as_before()) << bytes;
        EXPECT_TRUE(small.memory.intact() && small.state.intact());
        EXPECT_FALSE(small.log.is_full());
      }
    }
  }
}

// If the gradient is NaN, the new state is NaN, so each old value that was not NaN is an outlier.
TEST_P(Undo, AllValuesMayBeOutliers) {
  Trial trial(GetParam(), 5009, Pattern::Any);
  trial.ranges = {{.first = 0, .count = trial.state.n()}};
  for (int64_t i = 0; i < trial.state.n(); ++i) trial.state.set_gradient(i, NAN);
  int64_t num_nans = 0;
  for (const auto& moments : {trial.state.momenta(), trial.state.variances()}) {
    num_nans += std::ranges::count_if(moments, [](float x) { return std::isnan(x); });
  }
  ASSERT_TRUE(trial.update());
  EXPECT_GE(trial.log.num_outliers(), 3 * trial.state.n() - 3 - num_nans);
  trial.undo();
  EXPECT_TRUE(trial.is_as_before());
}

// An inaccurate inverse would be exact too, but with many outliers. Here 4.2 % of the momenta, 6.4
// % of the variances and 0.37 % of the masters are outliers.
TEST_P(Undo, MostValuesAreNoOutliers) {
  constexpr int64_t kCount = 65536;
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnlyTarget only(target);
    Trial trial(GetParam(), kCount, Pattern::Trained);
    trial.ranges = {{.first = 0, .count = kCount}};
    ASSERT_TRUE(trial.update());
    const auto share_of = [&](auto is_outlier) {
      const auto* const log = reinterpret_cast<const uint8_t*>(trial.memory.span().data());
      return static_cast<double>(std::count_if(log, log + kCount, is_outlier)) / kCount;
    };
    EXPECT_LT(share_of([](uint8_t of) { return (of & 7) == 7; }), 0.045) << hwy::TargetName(target);
    EXPECT_LT(share_of([](uint8_t of) { return (of >> 3 & 7) == 7; }), 0.07);
    EXPECT_LT(share_of([](uint8_t of) { return of >> 6 == 3; }), 0.0045);
  }
}

// ---- Mistakes that the comparison of bits must find --------------------------------------------

class UndoMistake : public Undo {
 public:
  /// Whether the state differs after an update, the mistake and the undo.
  bool finds(const std::function<void(Trial&)>& mistake, Pattern pattern = Pattern::Trained) {
    Trial trial(GetParam(), 4000, pattern);
    EXPECT_TRUE(trial.update());
    mistake(trial);
    if (trial.log.is_full()) trial.undo();
    return !trial.is_as_before();
  }
  /// The first element whose corrections are neither the largest nor outliers.
  static uint8_t& some_corrections(Trial& trial) {
    auto* const log = reinterpret_cast<uint8_t*>(trial.memory.span().data());
    const auto found = std::find_if(log, log + kUndoElements, [](uint8_t of) {
      return (of & 7) < 6 && (of >> 3 & 7) < 6 && of >> 6 < 2;
    });
    EXPECT_NE(found, log + kUndoElements);
    return *found;
  }
};
INSTANTIATE_TEST_SUITE_P(All, UndoMistake, testing::ValuesIn(kAllTypes),
                         [](const auto& info) { return name_of_types(info.param); });

TEST_P(UndoMistake, ACorrectionOffByOne) {
  for (const uint8_t one : {1, 1 << 3, 1 << 6}) {  // of momentum, variance and master
    EXPECT_TRUE(finds([&](Trial& t) { some_corrections(t) += one; }));
  }
  EXPECT_FALSE(finds([](Trial& t) { some_corrections(t) += 0; }));
}

TEST_P(UndoMistake, AMissingOutlier) {
  // The first outlier becomes a correction, so the undo reads the following outliers too early.
  const auto remove = [](Trial& t) {
    auto* const log = reinterpret_cast<uint8_t*>(t.memory.span().data());
    const auto is_outlier = [](uint8_t byte) { return (byte & 7) == 7; };
    auto* const outlier = std::find_if(log, log + kUndoElements, is_outlier);
    ASSERT_NE(outlier, log + kUndoElements);
    *outlier -= 4;
  };
  EXPECT_TRUE(finds(remove, Pattern::Special));
}

TEST_P(UndoMistake, MoreOutliersThanTheLogHas) {
  Trial trial(GetParam(), 4000, Pattern::Trained);
  ASSERT_TRUE(trial.update());
  std::ranges::fill(trial.memory.span().first(4000), std::byte{0xff});
  EXPECT_THROW(trial.undo(), LogicError);
}

TEST_P(UndoMistake, ASkippedUndo) {
  EXPECT_TRUE(finds([](Trial& t) { t.log.drop(); }));
}

TEST_P(UndoMistake, AMissingDecay) {
  EXPECT_TRUE(finds([](Trial& t) {
    for (AdamWRange& run : t.ranges) run.decay_factor = 0;
  }));
}

TEST_P(UndoMistake, AnotherGradient) {
  EXPECT_TRUE(finds([](Trial& t) { t.state.set_gradients(99); }));
}

// ---- Contracts ---------------------------------------------------------------------------------

TEST(UndoLog, IsEmptyAfterAnUndoAndCanBeUsedAgain) {
  Trial trial({DType::BF16, DType::BF16}, 1009, Pattern::Trained);
  EXPECT_FALSE(trial.log.is_full());
  EXPECT_THROW(trial.undo(), LogicError);
  EXPECT_THROW(trial.redo(step_at(6)), LogicError);
  EXPECT_THROW(trial.log.step(), LogicError);
  ASSERT_TRUE(trial.update());
  EXPECT_EQ(trial.log.step().t, 6);
  EXPECT_THROW((void)trial.update(), LogicError);
  EXPECT_THROW(undo_update(trial.team, trial.state.planes(), 1008, {}, trial.log), LogicError);
  trial.undo();
  EXPECT_THROW(trial.undo(), LogicError);
  ASSERT_TRUE(trial.update());
  trial.log.drop();
  ASSERT_TRUE(trial.update());
}

TEST(UndoLog, RejectsInvalidArguments) {
  Trial trial({DType::BF16, DType::BF16}, 1009, Pattern::Trained);
  trial.ranges = {{.first = 32, .count = 64}};
  EXPECT_THROW((void)trial.update(), LogicError);
  LogMemory memory(256);
  EXPECT_THROW(UndoLog(memory.span().subspan(1)), LogicError);
  EXPECT_THROW(undo_log_bytes(-1, 0), LogicError);
}

TEST(UndoLog, MayHaveNoElements) {
  ThreadTeam team(1);
  UndoLog log({});
  EXPECT_EQ(undo_log_bytes(0, 0), 0u);
  ASSERT_TRUE(update_with_log(team, Planes{}, 0, {}, step_at(1), log));
  undo_update(team, Planes{}, 0, {}, log);
}

TEST(UndoLog, TakesAByteForEachElementAndMoreForOutliers) {
  constexpr int64_t kCount = int64_t{1} << 25;
  const auto per_element = [](double outliers) {
    const auto num_outliers = static_cast<int64_t>(outliers * kCount);
    return static_cast<double>(undo_log_bytes(kCount, num_outliers)) / kCount;
  };
  // The last block of a task of 65536 elements, of 1024 words or at least 832 outliers, may be
  // partly empty.
  EXPECT_NEAR(per_element(0), 1 + 1.0 / 16, 1e-3);
  EXPECT_NEAR(per_element(0.02), 1 + 1.0 / 16 + 0.02 * 4 * 1024 / 832, 1e-3);
}

}  // namespace
}  // namespace ebb::test::tests_of_undo

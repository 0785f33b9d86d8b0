// The ordered sum against a plain loop, on each instruction set and for each number of threads.
// tests/kernels/test_ordered_sum.cpp compares it with the kernels of devices.
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "cpu_adam/ordered_sum.h"
#include "device/errors.h"
#include "device/kernel_arguments.h"
#include "system/denormals.h"
#include "system/thread_team.h"
#include "tests/cpu_adam/state.h"

namespace ebb::test::tests_of_ordered_sum {
namespace {

constexpr int64_t kCount = 2 * kPieceElements + 41;
constexpr DType kTypes[] = {DType::F32, DType::BF16, DType::F16};

using Arrays = std::vector<std::vector<std::vector<float>>>;  // [use][group][element]

/// Numbers over eight decades. Every third one cancels that of the group before, so that another
/// order of the sums gives other bits, also after rounding to 16 bits.
Arrays make_arrays(int num_uses, int num_groups, int64_t n) {
  Arrays arrays;
  std::mt19937_64 random(5);
  std::uniform_real_distribution<float> exponent(-4, 4);
  for (int use = 0; use < num_uses; ++use) {
    auto& groups = arrays.emplace_back();
    for (int g = 0; g < num_groups; ++g) {
      std::vector<float> values;
      for (int64_t i = 0; i < n; ++i) {
        const float size = std::pow(10.0f, exponent(random));
        values.push_back(random() % 2 ? size : -size);
        if (g > 0 && random() % 3 == 0)
          values.back() = -groups[static_cast<size_t>(g) - 1][static_cast<size_t>(i)];
      }
      groups.push_back(std::move(values));
    }
  }
  return arrays;
}

/// What round_sums_in_order() stores.
struct Finished {
  std::vector<std::byte> gradient;
  std::vector<double> partials;

  bool operator==(const Finished& other) const {
    return gradient == other.gradient && bits(partials) == bits(other.partials);
  }

 private:
  static std::vector<uint64_t> bits(const std::vector<double>& values) {
    std::vector<uint64_t> result;
    for (double v : values) result.push_back(std::bit_cast<uint64_t>(v));
    return result;
  }
};

size_t num_pieces(int64_t n) {
  return static_cast<size_t>((n + kPieceElements - 1) / kPieceElements);
}

const std::byte* bytes_of(const float* sums) { return reinterpret_cast<const std::byte*>(sums); }

using Addresses = std::vector<std::vector<const std::byte*>>;  // [use][group]
Finished finish(const Addresses& groups, DType sum_type, int64_t n, DType type, ThreadTeam& team) {
  Guarded gradient(n, size_of(type));
  std::vector<double> partials(num_pieces(n));
  round_sums_in_order(team, std::vector<GroupSums>(groups.begin(), groups.end()), sum_type, n,
                      gradient.data(), type, partials);
  EXPECT_TRUE(gradient.intact());
  return {gradient.content(), partials};
}

/// Elements from `first` on.
Finished finish(const Arrays& arrays, DType type, ThreadTeam& team, int64_t first = 0) {
  Addresses groups;
  for (const auto& use : arrays) {
    groups.emplace_back();
    for (const auto& group : use) groups.back().push_back(bytes_of(group.data() + first));
  }
  return finish(groups, DType::F32, std::ssize(arrays[0][0]) - first, type, team);
}

Finished finish(const Arrays& arrays, DType type, int num_threads, int64_t first = 0) {
  ThreadTeam team(num_threads);
  return finish(arrays, type, team, first);
}

float sum_plainly(const Arrays& arrays, size_t i) {
  float total = 0;
  for (size_t use = 0; use < arrays.size(); ++use) {
    float of_use = arrays[use][0][i];
    for (size_t g = 1; g < arrays[use].size(); ++g) of_use = of_use + arrays[use][g][i];
    total = use == 0 ? of_use : total + of_use;
  }
  return total;
}

double sum_squares_plainly(const std::vector<float>& x, size_t first, size_t last) {
  double sums[64] = {};
  for (size_t i = first; i < last; ++i) {
    sums[(i - first) % 64] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  for (int half = 32; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) sums[l] += sums[l + half];
  }
  return sums[0];
}

Finished finish_plainly(const Arrays& arrays, DType type) {
  const FlushDenormals flush;
  const size_t n = arrays[0][0].size();
  Finished finished{std::vector<std::byte>(n * size_of(type)), {}};
  std::vector<float> rounded;
  with_float_type(type, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < n; ++i) {
      const T value = static_cast<T>(sum_plainly(arrays, i));
      std::memcpy(finished.gradient.data() + i * sizeof(T), &value, sizeof(T));
      rounded.push_back(value);
    }
  });
  for (size_t first = 0; first < n; first += kPieceElements) {
    finished.partials.push_back(
        sum_squares_plainly(rounded, first, std::min(n, first + kPieceElements)));
  }
  return finished;
}

TEST(OrderedSum, EqualsAPlainLoop) {
  for (DType type : kTypes) {
    for (int num_uses : {1, 2, 3}) {
      for (int num_groups : {1, 2, 3, 5, 8, 9}) {
        for (int64_t n : {1, 15, 17, 2047, 2049, 6151}) {
          const Arrays arrays = make_arrays(num_uses, num_groups, n);
          EXPECT_TRUE(finish(arrays, type, 1) == finish_plainly(arrays, type))
              << num_uses << " uses, " << num_groups << " groups, " << n << " " << name_of(type);
        }
      }
    }
  }
}

TEST(OrderedSum, HasTheSameBitsForEachNumberOfThreads) {
  const tbb::global_control threads_allowed(tbb::global_control::max_allowed_parallelism, 8);
  for (DType type : kTypes) {
    const Arrays arrays = make_arrays(2, 3, kCount);
    const Finished expected = finish_plainly(arrays, type);
    for (int threads : {1, 2, 3}) {
      EXPECT_TRUE(finish(arrays, type, threads) == expected) << threads << " threads";
    }
    ThreadTeam two_nodes({{.num_threads = 1}, {.num_threads = 2}});
    EXPECT_TRUE(finish(arrays, type, two_nodes) == expected);
  }
}

TEST(OrderedSum, HasTheSameBitsOnEachInstructionSet) {
  const Arrays arrays = make_arrays(3, 7, 5003);
  for (DType type : kTypes) {
    const Finished expected = finish_plainly(arrays, type);
    for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
      const OnlyTarget only(target);
      EXPECT_TRUE(finish(arrays, type, 1) == expected) << hwy::TargetName(target);
    }
  }
}

TEST(OrderedSum, DoesNotDependOnAddresses) {
  const Arrays arrays = make_arrays(2, 5, 5003);
  for (DType type : kTypes) {
    for (int64_t first : {1, 3, 7, 16, 1000}) {
      Arrays rest = arrays;
      for (auto& use : rest) {
        for (auto& group : use) group.erase(group.begin(), group.begin() + first);
      }
      EXPECT_TRUE(finish(arrays, type, 1, first) == finish_plainly(rest, type));
    }
  }
}

/// Stores whole lines past the caches, and other ranges with ordinary stores.
TEST(OrderedSum, StoresToAlignedAndOtherAddresses) {
  constexpr int64_t n = 4 * 2048;
  const Arrays arrays = make_arrays(1, 2, n);
  const std::byte* const groups[] = {bytes_of(arrays[0][0].data()), bytes_of(arrays[0][1].data())};
  const GroupSums uses[] = {groups};
  constexpr std::byte kCanary{0xA5};
  ThreadTeam team(1);
  for (DType type : kTypes) {
    const Finished expected = finish_plainly(arrays, type);
    std::vector<std::byte> memory(expected.gradient.size() + 256);
    const size_t line = 64 - reinterpret_cast<uintptr_t>(memory.data()) % 64;
    for (size_t shift : {size_t{0}, size_of(type), size_t{32}}) {
      std::fill(memory.begin(), memory.end(), kCanary);
      std::byte* const gradient = memory.data() + line + shift;
      round_sums_in_order(team, uses, DType::F32, n, gradient, type);
      EXPECT_EQ(std::memcmp(gradient, expected.gradient.data(), expected.gradient.size()), 0);
      EXPECT_EQ(gradient[-1], kCanary);
      EXPECT_EQ(gradient[expected.gradient.size()], kCanary);
    }
  }
}

// ---- Sums in bf16

/// The same arrays in bf16, without their first elements.
class RoundedArrays {
 public:
  explicit RoundedArrays(const Arrays& arrays) {
    for (const auto& use : arrays) {
      auto& of_use = values_.emplace_back();
      for (const auto& group : use) of_use.emplace_back(group.begin(), group.end());
    }
  }
  Finished finish(DType type, ThreadTeam& team, int64_t first = 0) const {
    Addresses groups;
    for (const auto& use : values_) {
      groups.emplace_back();
      for (const auto& group : use) {
        groups.back().push_back(reinterpret_cast<const std::byte*>(group.data() + first));
      }
    }
    return tests_of_ordered_sum::finish(groups, DType::BF16, std::ssize(values_[0][0]) - first,
                                        type, team);
  }
  /// The values as fp32, from element `first` on.
  Arrays widened(int64_t first = 0) const {
    Arrays arrays;
    for (const auto& use : values_) {
      auto& of_use = arrays.emplace_back();
      for (const auto& group : use) of_use.emplace_back(group.begin() + first, group.end());
    }
    return arrays;
  }

 private:
  std::vector<std::vector<std::vector<BF16>>> values_;
};

TEST(OrderedSumOfBf16, EqualsAPlainLoop) {
  ThreadTeam one(1), three(3);
  for (DType type : kTypes) {
    for (int num_uses : {1, 2, 3}) {
      for (int num_groups : {1, 2, 3, 5, 6, 9}) {
        for (int64_t n : {1, 15, 17, 2047, 2049, 6151}) {
          const RoundedArrays arrays(make_arrays(num_uses, num_groups, n));
          EXPECT_TRUE(arrays.finish(type, one) == finish_plainly(arrays.widened(), type))
              << num_uses << " uses, " << num_groups << " groups, " << n << " " << name_of(type);
        }
      }
    }
    const RoundedArrays large(make_arrays(2, 3, kCount));
    EXPECT_TRUE(large.finish(type, three) == finish_plainly(large.widened(), type));
  }
}

TEST(OrderedSumOfBf16, HasTheSameBitsOnEachInstructionSetAndAddress) {
  ThreadTeam team(1);
  const RoundedArrays arrays(make_arrays(3, 7, 5003));
  for (DType type : kTypes) {
    for (int64_t first : {0, 1, 3, 16, 1000}) {
      const Finished expected = finish_plainly(arrays.widened(first), type);
      for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
        const OnlyTarget only(target);
        EXPECT_TRUE(arrays.finish(type, team, first) == expected) << hwy::TargetName(target);
      }
    }
  }
}

/// The comparisons above would see sums that are not rounded, and those in another order.
TEST(OrderedSumOfBf16, IsAnotherSum) {
  ThreadTeam team(1);
  const Arrays exact = make_arrays(2, 3, 1009);
  Arrays other_order = exact;
  std::swap(other_order[0][0], other_order[0][2]);
  for (DType type : kTypes) {
    const Finished rounded = RoundedArrays(exact).finish(type, team);
    EXPECT_FALSE(rounded.gradient == finish(exact, type, 1).gradient);
    EXPECT_FALSE(rounded.gradient == RoundedArrays(other_order).finish(type, team).gradient);
  }
}

TEST(OrderedSumOfBf16, KeepsZerosNansAndInfinities) {
  ThreadTeam team(1);
  const float inf = INFINITY, nan = std::bit_cast<float>(0x7fc10000u);
  const Arrays special{{{-0.0f, inf, -inf, nan, 1, inf}, {-0.0f, 1, 1, 1, -nan, -inf}}};
  const Arrays denormal{
      {std::vector<float>(67, std::bit_cast<float>(0x00400000u)), std::vector<float>(67, -0.0f)}};
  const RoundedArrays arrays(special), denormals(denormal);
  for (DType type : kTypes) {
    for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
      const OnlyTarget only(target);
      EXPECT_TRUE(arrays.finish(type, team).gradient ==
                  finish_plainly(arrays.widened(), type).gradient);
      EXPECT_TRUE(denormals.finish(type, team) == finish_plainly(denormals.widened(), type));
    }
  }
}

/// These comparisons see each mistake that a sum in another order would make.
TEST(OrderedSum, OtherOrdersAndLostGroupsGiveOtherBits) {
  const Arrays arrays = make_arrays(2, 3, 1009);
  for (DType type : kTypes) {
    const Finished right = finish(arrays, type, 1);
    Arrays other_order = arrays, lost_group = arrays, lost_use = arrays, one_use = arrays;
    std::swap(other_order[0][0], other_order[0][2]);
    lost_group[1].pop_back();
    lost_use.pop_back();
    for (auto& group : one_use[1]) one_use[0].push_back(group);
    one_use.pop_back();
    for (const Arrays* wrong : {&other_order, &lost_group, &lost_use, &one_use}) {
      const Finished finished = finish(*wrong, type, 1);
      EXPECT_FALSE(finished.gradient == right.gradient);
      EXPECT_FALSE(finished == right);
    }
  }
}

float first_of(const std::vector<std::byte>& gradient, DType type) {
  return with_float_type(type, [&](auto zero) -> float {
    std::memcpy(&zero, gradient.data(), sizeof(zero));
    return zero;
  });
}

TEST(OrderedSum, KeepsTheSignOfZero) {
  for (DType type : kTypes) {
    for (int num_uses : {1, 2, 3}) {
      for (int num_groups : {1, 2, 5}) {
        const Arrays zeros(static_cast<size_t>(num_uses),
                           {static_cast<size_t>(num_groups), std::vector<float>(67, -0.0f)});
        EXPECT_TRUE(std::signbit(first_of(finish(zeros, type, 1).gradient, type)));
      }
    }
    const Arrays of_both_signs{{{-0.0f}, {0.0f}}};
    EXPECT_FALSE(std::signbit(first_of(finish(of_both_signs, type, 1).gradient, type)));
  }
}

TEST(OrderedSum, FlushesDenormalsOfSums) {
  const float denormal = std::bit_cast<float>(0x00400000u);
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnlyTarget only(target);
    for (DType type : {DType::F32, DType::BF16}) {
      const Arrays inputs{{std::vector<float>(67, denormal), std::vector<float>(67, -0.0f)}};
      const Arrays results{{std::vector<float>(67, 1.5f * std::numeric_limits<float>::min()),
                            std::vector<float>(67, -std::numeric_limits<float>::min())}};
      EXPECT_EQ(first_of(finish(inputs, type, 1).gradient, type), 0);
      EXPECT_EQ(first_of(finish(results, type, 1).gradient, type), 0);
      EXPECT_TRUE(finish(inputs, type, 1) == finish_plainly(inputs, type));
      EXPECT_TRUE(finish(results, type, 1) == finish_plainly(results, type));
      // A single sum is not added to anything, so it is only rounded.
      const Arrays single{{std::vector<float>(67, denormal)}};
      EXPECT_TRUE(finish(single, type, 1) == finish_plainly(single, type));
    }
  }
}

TEST(OrderedSum, KeepsNansAndInfinities) {
  const float inf = INFINITY, nan = std::bit_cast<float>(0x7fc12345u);
  const Arrays arrays{{{inf, -inf, nan, 1, inf, 3e38f}, {1, 1, 1, -nan, -inf, 3e38f}}};
  for (DType type : kTypes) {
    for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
      const OnlyTarget only(target);
      const Finished finished = finish(arrays, type, 1);
      EXPECT_TRUE(finished.gradient == finish_plainly(arrays, type).gradient)
          << hwy::TargetName(target);
      EXPECT_TRUE(std::isnan(finished.partials[0]));
    }
  }
}

TEST(PartialNorms, EqualThoseOfTheSum) {
  for (DType type : kTypes) {
    const Finished finished = finish(make_arrays(1, 2, kCount), type, 2);
    for (int threads : {1, 3}) {
      ThreadTeam team(threads);
      std::vector<double> partials(num_pieces(kCount));
      partial_norms(team, finished.gradient.data(), type, kCount, partials);
      EXPECT_EQ(partials, finished.partials);
    }
  }
}

// ---- Running sums

/// The sum over one use: the first `cut` groups, then the others are added to it in its place.
std::vector<float> add_in_two_steps(std::span<const std::byte* const> groups, size_t cut,
                                    DType sum_type, int64_t n, ThreadTeam& team) {
  Guarded sum(n, sizeof(float));
  auto* const values = reinterpret_cast<float*>(sum.data());
  add_in_order(team, nullptr, groups.first(cut), sum_type, n, values);
  if (cut < groups.size()) add_in_order(team, values, groups.subspan(cut), sum_type, n, values);
  EXPECT_TRUE(sum.intact());
  return {values, values + n};
}

/// Whatever the first machine has of the groups, and in which type they are.
TEST(AddInOrder, GivesTheBitsOfAllGroups) {
  ThreadTeam team(2);
  for (const int64_t n : {int64_t{1}, int64_t{17}, int64_t{2049}, kCount}) {
    const Arrays arrays = make_arrays(1, 7, n);
    std::vector<std::vector<BF16>> rounded;
    std::vector<const std::byte*> groups, rounded_groups;
    for (const std::vector<float>& group : arrays[0]) {
      groups.push_back(bytes_of(group.data()));
      rounded.emplace_back(group.begin(), group.end());
      rounded_groups.push_back(reinterpret_cast<const std::byte*>(rounded.back().data()));
    }
    for (const size_t cut : {1u, 2u, 5u, 6u, 7u}) {
      for (const DType sum_type : {DType::F32, DType::BF16}) {
        const auto& all = sum_type == DType::F32 ? groups : rounded_groups;
        const std::vector<float> sum = add_in_two_steps(all, cut, sum_type, n, team);
        for (const DType type : kTypes) {
          EXPECT_TRUE(finish({{bytes_of(sum.data())}}, DType::F32, n, type, team) ==
                      finish({all}, sum_type, n, type, team))
              << n << " elements, " << cut << " of 7 groups, " << name_of(sum_type);
        }
      }
    }
  }
}

TEST(AddInOrder, TakesAnyAddress) {
  ThreadTeam team(1);
  constexpr int64_t n = 3 * 2048;
  const Arrays arrays = make_arrays(1, 2, n);
  const std::byte* const groups[] = {bytes_of(arrays[0][0].data()), bytes_of(arrays[0][1].data())};
  std::vector<float> before(arrays[0][1]), memory(n + 64);
  for (const bool has_before : {false, true}) {
    for (const size_t shift : {0u, 1u, 16u}) {
      const size_t line = 16 - reinterpret_cast<uintptr_t>(memory.data()) % 64 / sizeof(float);
      float* const sum = memory.data() + line + shift;
      sum[-1] = sum[n] = 7;
      add_in_order(team, has_before ? before.data() : nullptr, groups, DType::F32, n, sum);
      for (size_t i = 0; i < n; ++i) {
        const float first = has_before ? before[i] + arrays[0][0][i] : arrays[0][0][i];
        ASSERT_EQ(sum[i], first + arrays[0][1][i]) << i;
      }
      EXPECT_EQ(sum[-1], 7);
      EXPECT_EQ(sum[n], 7);
    }
  }
}

TEST(AddInOrder, RejectsWrongArguments) {
  ThreadTeam team(1);
  std::vector<float> sums(4);
  const std::byte* const groups[] = {bytes_of(sums.data())};
  EXPECT_THROW(add_in_order(team, nullptr, {}, DType::F32, 4, sums.data()), LogicError);
  EXPECT_THROW(add_in_order(team, nullptr, groups, DType::F16, 4, sums.data()), LogicError);
  EXPECT_THROW(add_in_order(team, nullptr, groups, DType::F32, -1, sums.data()), LogicError);
}

TEST(OrderedSum, RejectsWrongArguments) {
  ThreadTeam team(1);
  const std::vector<float> sums(4);
  const std::byte* const groups[] = {bytes_of(sums.data())};
  const GroupSums right[] = {groups}, no_group[] = {groups, {}};
  std::vector<std::byte> gradient(16);
  std::vector<double> partials(2);
  const auto run = [&](std::span<const GroupSums> uses, int64_t count, DType type, size_t pieces) {
    round_sums_in_order(team, uses, DType::F32, count, gradient.data(), type,
                        std::span(partials).first(pieces));
  };
  EXPECT_NO_THROW(run(right, 4, DType::F32, 1));
  EXPECT_NO_THROW(run(right, 0, DType::F32, 0));
  EXPECT_THROW(run({}, 4, DType::F32, 1), LogicError);
  EXPECT_THROW(run(no_group, 4, DType::F32, 1), LogicError);
  EXPECT_THROW(run(right, -1, DType::F32, 0), LogicError);
  EXPECT_THROW(run(right, 4, DType::F64, 1), LogicError);
  EXPECT_THROW(run(right, 4, DType::F32, 2), LogicError);
  EXPECT_THROW(round_sums_in_order(team, right, DType::F16, 4, gradient.data(), DType::F32),
               LogicError);
  EXPECT_THROW(partial_norms(team, gradient.data(), DType::F32, 4, {}), LogicError);
}

}  // namespace
}  // namespace ebb::test::tests_of_ordered_sum

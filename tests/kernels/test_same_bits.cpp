// Kernels give the same bits for each number of threads and for each instruction set with FMA.
#include <hwy/targets.h>
#include <tbb/global_control.h>

#include "device/arithmetic.h"
#include "tests/kernels/bit_cases.h"
#include "tests/kernels/reference.h"

namespace ebb::test {
namespace {

/// Restricts run-time dispatch to one instruction set during its lifetime.
class OnlyTarget {
 public:
  explicit OnlyTarget(int64_t target) { set(target); }
  ~OnlyTarget() { set(0); }

 private:
  static void set(int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().DeInit();
  }
};

// Only one instruction set has the bf16 dot product, so only numbers of threads are compared.
TEST(SameBitsOfDotProducts, ForEveryNumberOfThreads) {
  if (!this_processor().has_bf16_dot) GTEST_SKIP() << "this processor has no dot product of bf16";
  const tbb::global_control threads_allowed(tbb::global_control::max_allowed_parallelism, 8);
  const auto run = [](int threads, Arithmetic arithmetic) {
    Harness h(threads, arithmetic);
    return linear_bits(h, DType::BF16);
  };
  const Bits expected = run(1, Arithmetic::Bf16Dot);
  for (int threads : {2, 3, 8}) {
    EXPECT_TRUE(run(threads, Arithmetic::Bf16Dot) == expected) << threads << " threads";
  }
  EXPECT_FALSE(run(1, Arithmetic::Fp32) == expected) << "the dot product was not used";
}

class SameBits : public testing::TestWithParam<std::tuple<DType, BitCase>> {
 protected:
  Bits run(int num_threads) const {
    Harness h(num_threads);
    return std::get<1>(GetParam()).run(h, std::get<0>(GetParam()));
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, SameBits,
                         testing::Combine(testing::Values(DType::F32, DType::BF16, DType::F16),
                                          testing::ValuesIn(bit_cases().begin(),
                                                            bit_cases().end())),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  std::get<1>(info.param).name;
                         });

TEST_P(SameBits, ForEveryNumberOfThreads) {
  // By default oneTBB starts no more threads than there are cores.
  const tbb::global_control threads_allowed(tbb::global_control::max_allowed_parallelism, 8);
  const Bits expected = run(1);
  for (int threads : {2, 3, 8}) EXPECT_TRUE(run(threads) == expected) << threads << " threads";
}

TEST_P(SameBits, OnEveryInstructionSetWithFusedMultiplyAdd) {
  int64_t with_fma = 0;
  Bits expected;
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (target > HWY_AVX2) continue;  // Highway gives better targets smaller values
    const OnlyTarget only(target);
    const Bits bits = run(2);
    if (with_fma++ == 0) expected = bits;
    EXPECT_TRUE(bits == expected) << hwy::TargetName(target);
  }
  if (with_fma < 2) GTEST_SKIP() << "this machine has " << with_fma << " instruction sets with FMA";
}

/// On the host both kernels add the same keys in the same order for each query.
TEST(SameBits, OfCachedAttentionAndWholeAttention) {
  constexpr int64_t b = 2, n = 131, d = 24, capacity = 140;
  for (const DType t : {DType::F32, DType::BF16}) {
    for (const int64_t window : {0, 50}) {
      const AttentionShape shape{.num_heads = 4, .num_kv_heads = 2, .window = window};
      Harness h;
      const Array qkv = random_array(t, {b, n, 8 * d}, 1, 2.0), out(t, {b, n, 4 * d});
      const Array lse(DType::F32, {b, 4, n}), cache(t, {b, capacity, 4 * d});
      h.kernels->submit(h.stream, AttentionForward{out, lse, qkv, shape});
      const Values all = qkv.values(), whole = out.values();
      int64_t first = 0;
      for (const int64_t count : {70, 60, 1}) {
        Values part, want;
        std::vector<int32_t> positions;
        for (int64_t i = 0; i < b * count; ++i) {
          const int64_t token = i / count * n + first + i % count;
          part.insert(part.end(), all.begin() + token * 8 * d, all.begin() + (token + 1) * 8 * d);
          want.insert(want.end(), whole.begin() + token * 4 * d,
                      whole.begin() + (token + 1) * 4 * d);
          positions.push_back(static_cast<int32_t>(first + i % count));
        }
        const Array piece(t, {b, count, 8 * d}, part), got(t, {b, count, 4 * d});
        const Array at = int_array(positions);
        h.kernels->submit(h.stream, AttentionCached{got, piece, cache, at, shape});
        EXPECT_EQ(got.values(), want) << name_of(t) << ", from token " << first;
        first += count;
      }
    }
  }
}

TEST(InstructionSets, EachIsNearFp64) {
  constexpr int64_t n = 37, c = 35, oc = 51;
  const Array x = random_array(DType::BF16, {n, c}, 1), w = random_array(DType::BF16, {oc, c}, 2);
  const AttentionCase shape{1, 70, 1, 20, true, {}};
  const Array qkv = random_array(DType::BF16, {1, 70, 60}, 3);
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
    Harness h;
    const Array y(DType::BF16, {n, oc}), out(DType::BF16, {1, 70, 20}), lse(DType::F32, {1, 1, 70});
    h.kernels->submit(h.stream, LinearForward{y, x, w, {}});
    EXPECT_TRUE(close(y.values(), linear(x.values(), w.values(), {}, n, c, oc),
                      Values(static_cast<size_t>(n * oc), 10.0), 1e-6, DType::BF16));
    h.kernels->submit(h.stream, AttentionForward{out, lse, qkv, {}});
    const Values want = attention(qkv.values(), shape).out;
    EXPECT_TRUE(close(out.values(), want, Values(want.size(), 1.0), 1e-6, DType::BF16));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

}  // namespace
}  // namespace ebb::test

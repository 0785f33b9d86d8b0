// The same bits for every number of threads and every instruction set with fused multiply-add.
#include <hwy/targets.h>
#include <tbb/global_control.h>

#include "device/arithmetic.h"
#include "tests/kernels/bit_cases.h"
#include "tests/kernels/reference.h"

namespace ebb::test {
namespace {

/// Restricts run-time dispatch to one instruction set while it lives.
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

// The dot product of bf16 is one instruction set by itself: its bits are compared between threads.
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
  EXPECT_FALSE(run(1, Arithmetic::Fp32) == expected) << "the other arithmetic was used";
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
  // Otherwise oneTBB starts no more threads than there are cores.
  const tbb::global_control threads_allowed(tbb::global_control::max_allowed_parallelism, 8);
  const Bits expected = run(1);
  for (int threads : {2, 3, 8}) EXPECT_TRUE(run(threads) == expected) << threads << " threads";
}

TEST_P(SameBits, OnEveryInstructionSetWithFusedMultiplyAdd) {
  int64_t with_fma = 0;
  Bits expected;
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (target > HWY_AVX2) continue;  // a smaller bit is a better target
    const OnlyTarget only(target);
    const Bits bits = run(2);
    if (with_fma++ == 0) expected = bits;
    EXPECT_TRUE(bits == expected) << hwy::TargetName(target);
  }
  if (with_fma < 2) GTEST_SKIP() << "this machine has " << with_fma << " such instruction sets";
}

TEST(InstructionSets, EachIsRight) {
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
    h.kernels->linear_forward(h.stream, y, x, w, {});
    EXPECT_TRUE(close(y.values(), linear(x.values(), w.values(), {}, n, c, oc),
                      Values(static_cast<size_t>(n * oc), 10.0), 1e-6, DType::BF16));
    h.kernels->attention_forward(h.stream, out, lse, qkv, {});
    const Values want = attention(qkv.values(), shape).out;
    EXPECT_TRUE(close(out.values(), want, Values(want.size(), 1.0), 1e-6, DType::BF16));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

}  // namespace
}  // namespace ebb::test

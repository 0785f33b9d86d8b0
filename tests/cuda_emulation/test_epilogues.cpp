// An epilogue is computed with the product if the library can do so, and otherwise by our own
// kernels. Both give nearly the same numbers, in the expected number of calls.
#include "cuda/linear.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/kernels/bit_cases.h"
#include "tests/kernels/reference.h"

namespace ebb::test::tests_of_epilogues {
namespace {

class LibraryWithoutEpilogues {
 public:
  LibraryWithoutEpilogues() { emulation::settings().has_epilogues = false; }
  ~LibraryWithoutEpilogues() { emulation::settings().has_epilogues = true; }
};

constexpr int64_t kRows = 37, kOuter = 48, kInner = 96;

struct Results {
  Values before, y, dbefore, dw, dbias;
};

Results compute(DType type) {
  Harness h;
  const Array x = random_array(type, {kRows, kOuter}, 1),
              w = random_array(type, {kInner, kOuter}, 2);
  const Array bias = random_array(type, {kInner}, 3),
              down = random_array(type, {kOuter, kInner}, 4);
  const Array before(type, {kRows, kInner}), y(type, {kRows, kInner}), d(type, {kRows, kInner});
  const Array dw(DType::F32, {kInner, kOuter}), dbias(DType::F32, {kInner});
  h.kernels->submit(h.stream, LinearForward{before, x, w, bias});
  h.kernels->submit(h.stream, ActivationForward{y, before, Activation::GeluTanh});
  h.kernels->submit(h.stream, ActivationLinearBackward{d, x, down, before, Activation::GeluTanh});
  h.kernels->submit(h.stream, LinearBackwardWeight{dw, dbias, y, x, Write::Store});
  h.kernels->submit(h.stream, LinearBackwardWeight{dw, dbias, y, x, Write::Add});
  return {before.values(), y.values(), d.values(), dw.values(), dbias.values()};
}

TEST(Epilogues, AreReplacedWhereTheLibraryHasNone) {
  for (const DType type : {DType::F32, DType::BF16, DType::F16}) {
    const Results with = compute(type);
    const LibraryWithoutEpilogues without;
    const Results apart = compute(type);
    EXPECT_EQ(with.before, apart.before);
    const double unit = type == DType::F32 ? 1e-6 : type == DType::BF16 ? 0x1p-7 : 0x1p-10;
    const auto near = [&](const Values& a, const Values& b, double scale) {
      return close(a, b, Values(a.size(), scale), unit, DType::F32);
    };
    EXPECT_EQ(with.y, apart.y);
    EXPECT_TRUE(near(with.dbefore, apart.dbefore, 8));
    EXPECT_TRUE(near(with.dw, apart.dw, 2 * kRows));
    EXPECT_TRUE(near(with.dbias, apart.dbias, 2 * kRows));
    // In bf16 the results differ, because only the separate kernels round the intermediate value.
    // ActivationLinearBackward uses the epilogue for bf16 only.
    EXPECT_EQ(with.dbefore == apart.dbefore, type != DType::BF16);
  }
}

TEST(Epilogues, TheSlopeOfGeluGoesWithProductsOnlyWhereThatIsFaster) {
  EXPECT_TRUE(gelu_is_faster_with_products(90));
  for (const int architecture : {80, 86, 89, 100, 120}) {
    EXPECT_FALSE(gelu_is_faster_with_products(architecture)) << architecture;
  }
  const Results together = compute(DType::BF16);
  emulation::settings().architecture = 89;
  const Results apart = compute(DType::BF16);
  emulation::settings().architecture = 90;
  EXPECT_EQ(together.y, apart.y);
  EXPECT_NE(together.dbefore, apart.dbefore) << "the separate kernel rounds the gradient first";
}

/// Our own kernel computes the gradient of the bias, with wide accesses where it can.
TEST(Epilogues, ThatAreReplacedGiveTheSameBitsForMisalignedTensors) {
  const LibraryWithoutEpilogues without;
  Harness h;
  for (const DType type : {DType::F32, DType::BF16, DType::F16}) {
    const Bits expected = bias_gradient_bits(h, type);
    const MisalignedArrays misaligned;
    EXPECT_TRUE(bias_gradient_bits(h, type) == expected) << name_of(type);
  }
}

}  // namespace
}  // namespace ebb::test::tests_of_epilogues

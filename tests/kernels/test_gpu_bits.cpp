// On a GPU a kernel gives the same bits again, on another stream, after other kernels, and if its
// tensors are not aligned for wide accesses.
#include "tests/kernels/bit_cases.h"

namespace ebb::test {
namespace {

class GpuBits : public testing::TestWithParam<std::tuple<DType, BitCase>> {};
INSTANTIATE_TEST_SUITE_P(Kernels, GpuBits,
                         testing::Combine(testing::Values(DType::F32, DType::BF16, DType::F16),
                                          testing::ValuesIn(bit_cases().begin(),
                                                            bit_cases().end())),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  std::get<1>(info.param).name;
                         });

TEST_P(GpuBits, AreTheSameAgain) {
  const auto& [dtype, bit_case] = GetParam();
  Harness first, second;
  const Bits expected = bit_case.run(first, dtype);
  const Array between = random_array(DType::F32, {100003}, 9, 6.0);
  second.kernels->submit(second.stream, ActivationForward{between, between, Activation::GeluTanh});
  EXPECT_TRUE(bit_case.run(second, dtype) == expected);
}

/// A library chooses its algorithm by the alignment of tensors, so its products are not compared.
/// linear_activation is not compared either: an epilogue needs an aligned tensor.
TEST_P(GpuBits, AreTheSameForMisalignedTensors) {
  const auto& [dtype, bit_case] = GetParam();
  if (bit_case.name == "linear_activation" ||
      (bit_case.name == "linear" && Harness::has_product_library())) {
    GTEST_SKIP() << "depends on the alignment of tensors";
  }
  Harness h;
  const Bits expected = bit_case.run(h, dtype);
  const MisalignedArrays misaligned;
  EXPECT_TRUE(bit_case.run(h, dtype) == expected);
}

/// In fp32 our own kernel computes the gradient of the bias.
TEST(GpuBitsOfBiasGradients, AreTheSameForMisalignedTensors) {
  Harness h;
  const Bits expected = bias_gradient_bits(h, DType::F32);
  const MisalignedArrays misaligned;
  EXPECT_TRUE(bias_gradient_bits(h, DType::F32) == expected);
}

TEST(MisalignedArrays, BeginOneElementAfterAnAlignedAddress) {
  const auto offset = [](DType dtype) {
    return reinterpret_cast<uintptr_t>(Array(dtype, {8}).tensor().data) % 16;
  };
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16, DType::F64}) {
    EXPECT_EQ(offset(dtype), 0u);
    const MisalignedArrays misaligned;
    EXPECT_EQ(offset(dtype), size_of(dtype));
  }
}

}  // namespace
}  // namespace ebb::test

// On a GPU a kernel gives the same bits again, on another stream and after other kernels.
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

}  // namespace
}  // namespace ebb::test

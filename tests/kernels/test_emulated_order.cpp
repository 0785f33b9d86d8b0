// On the emulated GPU kernels give the same bits if threads and blocks run in reverse order.
#include "tests/cuda_emulation/grid.h"
#include "tests/kernels/bit_cases.h"

namespace ebb::test {
namespace {

class ReverseOrder {
 public:
  ReverseOrder() { emulation::set_backwards(true); }
  ~ReverseOrder() { emulation::set_backwards(false); }
};

class EmulatedOrder : public testing::TestWithParam<std::tuple<DType, BitCase>> {};
INSTANTIATE_TEST_SUITE_P(Kernels, EmulatedOrder,
                         testing::Combine(testing::Values(DType::F32, DType::BF16, DType::F16),
                                          testing::ValuesIn(bit_cases().begin(),
                                                            bit_cases().end())),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  std::get<1>(info.param).name;
                         });

TEST_P(EmulatedOrder, DoesNotMatter) {
  const auto& [dtype, bit_case] = GetParam();
  Harness h;
  const Bits expected = bit_case.run(h, dtype);
  const ReverseOrder reverse_order;
  EXPECT_TRUE(bit_case.run(h, dtype) == expected);
}

}  // namespace
}  // namespace ebb::test

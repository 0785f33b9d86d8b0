// Each kernel launch, copy, mapping and wait of two training steps on the emulated GPU is refused
// once, and a quarter of the 1,500 records of events, most of which only measure time. The error
// names the call, nothing leaks, and a run that continues from the last saved state has the same
// state as a run without a failure.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "tests/cuda_emulation/refused_steps.h"

namespace ebb::test {
namespace {

/// A test refuses every fourth call, so that it ends before the watchdog of OnGpu.
constexpr uint64_t kParts = 4;

class RefusedCall : public OnGpu,
                    public testing::WithParamInterface<std::tuple<const char*, uint64_t>> {};

TEST_P(RefusedCall, LosesNothing) {
  const auto& [call, part] = GetParam();
  TwoSteps run(Between::State);
  uint64_t expected = 0;
  const auto calls = count_calls([&] { expected = run(); });
  ASSERT_TRUE(calls.contains(call));
  for (uint64_t n = part; n < calls.at(call); n += kParts) {
    refuse(run, call, n, calls.at(call), expected);
  }
}

std::string name_of_case(const testing::TestParamInfo<RefusedCall::ParamType>& info) {
  return std::string(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Calls, RefusedCall,
                         testing::Combine(testing::Values("cudaLaunchKernelEx", "cudaMemcpyAsync",
                                                          "cudaMemsetAsync", "cuMemMap",
                                                          "cuMemSetAccess", "cudaStreamWaitEvent",
                                                          "cuStreamWaitValue32"),
                                          testing::Range(uint64_t{0}, kParts)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Records, RefusedCall,
                         testing::Combine(testing::Values("cudaEventRecord"),
                                          testing::Values(uint64_t{1})),
                         name_of_case);

}  // namespace
}  // namespace ebb::test

// Parameters for tests that run on each device that computes: the host and a GPU.
//
// A program that links the emulated CUDA backend runs its Cuda cases on the emulated GPU; other
// programs use the GPU of this machine. Without a GPU these cases are skipped; with
// EBB_REQUIRE_CUDA=1 in the environment they fail instead.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "device/device.h"

namespace ebb::test {

class OnDevice : public testing::TestWithParam<DeviceKind> {
 public:
  static std::string name(const testing::TestParamInfo<DeviceKind>& info) {
    return info.param == DeviceKind::Host ? "Host" : "Cuda";
  }

 protected:
  void SetUp() override {
    if (GetParam() != DeviceKind::Cuda || !probe_cuda().devices.empty()) return;
    const char* required = std::getenv("EBB_REQUIRE_CUDA");
    if (required != nullptr && std::string_view(required) == "1") {
      FAIL() << "EBB_REQUIRE_CUDA=1, but: " << probe_cuda().note;
    }
    GTEST_SKIP() << probe_cuda().note;
  }

  bool on_host() const { return GetParam() == DeviceKind::Host; }
  /// The size of a block must be a multiple of this.
  size_t granularity() const { return on_host() ? 4096 : size_t{2} << 20; }

  /// A device of the kind that the test parameter names.
  std::unique_ptr<Device> make_device(DeviceOptions options = {}) const {
    options.profile.kind = GetParam();
    if (options.profile.num_threads == 0) options.profile.num_threads = 1;
    return create_device(options);
  }
};

}  // namespace ebb::test

/// Runs each test of `suite` on the host and on a GPU.
#define EBB_ON_EVERY_DEVICE(suite)                                                            \
  INSTANTIATE_TEST_SUITE_P(Devices, suite,                                                    \
                           testing::Values(::ebb::DeviceKind::Host, ::ebb::DeviceKind::Cuda), \
                           ::ebb::test::OnDevice::name)

#include <gtest/gtest.h>

#include <string>

#include "device/device.h"
#include "device/errors.h"

namespace ebb {
namespace {

TEST(CudaProbeTest, TheProbeListsDevicesOrGivesAReason) {
  const CudaProbe probe = probe_cuda();
  EXPECT_EQ(probe.devices.empty(), !probe.note.empty());
}

TEST(CudaProbeTest, TheErrorWithoutAGpuNamesTheHostDevice) {
  if (!probe_cuda().devices.empty()) GTEST_SKIP() << "this machine has a GPU";
  try {
    create_device({.profile = {.kind = DeviceKind::Cuda}});
    FAIL() << "a device was created without a GPU";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("`device` host"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ebb

#include <gtest/gtest.h>

#include <string>

#include "device/device.h"
#include "device/errors.h"

namespace ebb {
namespace {

TEST(CudaSeam, ProbeNamesDevicesOrSaysWhyNot) {
  const CudaProbe probe = probe_cuda();
  EXPECT_EQ(probe.devices.empty(), !probe.note.empty());
}

TEST(CudaSeam, CreatingADeviceWithoutAGpuSaysWhatToUseInstead) {
  if (!probe_cuda().devices.empty()) GTEST_SKIP() << "there is a GPU here";
  try {
    create_device({.kind = DeviceKind::Cuda});
    FAIL() << "there is no GPU to create";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("--device host"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ebb

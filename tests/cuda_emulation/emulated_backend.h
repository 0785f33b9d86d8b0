// Devices of the emulated GPU, for tests of the CUDA backend.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "device/device.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/cuda_emulation/launch_queue.h"
#include "tests/trainer/watchdog.h"

namespace ebb::test {

inline std::unique_ptr<Device> create_gpu(DeviceOptions options = {}) {
  options.profile.kind = DeviceKind::Cuda;
  options.profile.num_threads = 1;
  return create_device(options);
}

/// After each test nothing of the GPU is left, and its settings are the default again. No call has
/// found the queue of a stream full.
class EmulatedBackend : public testing::Test {
 protected:
  EmulatedBackend() { emulation::forget_full_queues(); }
  ~EmulatedBackend() override {
    EXPECT_EQ(emulation::live(), emulation::Live());
    EXPECT_EQ(emulation::num_full_queues(), 0u);
    emulation::settings() = {};
  }
  const Watchdog watchdog_{std::chrono::seconds(240)};
};

}  // namespace ebb::test

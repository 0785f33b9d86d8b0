// Training on the emulated GPU, in small: what its tests share.
#pragma once

#include <gtest/gtest.h>

#include "tests/cuda_emulation/emulated_device.h"
#include "tests/trainer/cases.h"
#include "tests/trainer/watchdog.h"

namespace ebb::test {

/// Small chunks, as elsewhere in the tests; a real GPU maps multiples of 2 MiB. Afterwards
/// everything has been given back.
class OnEmulatedGpu : public testing::Test {
 protected:
  OnEmulatedGpu() { emulation::settings().granularity = size_t{64} << 10; }
  ~OnEmulatedGpu() override {
    EXPECT_EQ(emulation::live(), emulation::Live());
    emulation::settings() = {};
  }

 private:
  const Watchdog watchdog_{std::chrono::seconds(240)};
};

/// The same case, with a model that it trains in a moment.
inline TrainingCase on_emulated_gpu(TrainingCase run) {
  run.device = DeviceKind::Cuda;
  run.model = emulated_gpt();
  run.length = 16;
  run.num_steps = 2;
  return run;
}

}  // namespace ebb::test

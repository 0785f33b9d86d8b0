// Helpers of the tests that train on a GPU, or on the emulated GPU if the program is linked with
// it.
//
// Without a GPU these tests are reported as skipped. With EBB_REQUIRE_CUDA=1 they fail instead.
#pragma once

#include <gtest/gtest.h>

#include "tests/trainer/cases.h"
#include "tests/trainer/watchdog.h"

namespace ebb::test {

class OnGpu : public testing::Test {
 protected:
  OnGpu();
  ~OnGpu() override;
  void SetUp() override;

 private:
  const Watchdog watchdog_{std::chrono::seconds(240)};
};

/// Returns the case with a model of a few chunks and with a chunk size that the GPU can map.
TrainingCase on_gpu(TrainingCase run);
/// The smallest chunk size that the GPU can map, in bytes.
size_t smallest_chunk_on_gpu();

}  // namespace ebb::test

// Training on a GPU, or on the emulated one in a program that links that: what these tests share.
//
// Without a GPU they skip, visibly; with EBB_REQUIRE_CUDA=1 in the environment they fail.
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

/// The same case, with a model of a few chunks, and chunks that the GPU maps.
TrainingCase on_gpu(TrainingCase run);
/// Bytes; no chunk is smaller.
size_t smallest_chunk_on_gpu();

}  // namespace ebb::test

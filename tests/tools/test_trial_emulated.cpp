// A trial of a model's shapes on a GPU: its copies take the link, in the prediction as in the step.
#include <gtest/gtest.h>

#include "device/errors.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tools/machine_rates.h"
#include "tools/trial.h"

namespace ebb::test {
namespace {

/// Kernels next to nothing beside a slow link. Were that not in the prediction, the kernels would
/// be taken for many times slower than they are.
TEST(TrialOnAGpu, DoesNotTakeTheLinkForSlowKernels) {
  constexpr double kLink = 2e6;
  emulation::settings().granularity = size_t{64} << 10;
  emulation::settings().copy_bytes_per_s = kLink;
  const TrialShape shape{.config = Gpt2Config{.vocabulary = 97,
                                              .max_positions = 8,
                                              .channels = 64,
                                              .num_layers = 2,
                                              .num_heads = 2},
                         .length = 8,
                         .chunk_bytes = size_t{128} << 10};
  const Machine machine{.flops_per_s = 1e12,
                        .device_bytes_per_s = 1e12,
                        .load_bytes_per_s = kLink,
                        .store_bytes_per_s = kLink,
                        .update_bytes_per_s = 1e12};
  const auto ratio = try_model(shape, {.kind = DeviceKind::Cuda, .num_threads = 1}, machine);
  emulation::settings() = {};
  ASSERT_TRUE(ratio);
  EXPECT_GT(*ratio, 0.5);
  EXPECT_LT(*ratio, 2);
}

/// The run's limit is not the machine's. Buffers of 24 MiB are pinned and copied, and then the
/// first kernel fails: all of them would take minutes here.
TEST(MeasuringAGpu, IsDoneWithoutTheRunsLimitOfPinnedMemory) {
  const DeviceOptions options{.kind = DeviceKind::Cuda,
                              .num_threads = 1,
                              .pinned_bytes = size_t{2} << 20,
                              .fault = [](FaultSite site) { return site == FaultSite::Launch; }};
  EXPECT_THROW(measure_machine(options, DType::BF16, DType::BF16), DeviceError);
}

}  // namespace
}  // namespace ebb::test

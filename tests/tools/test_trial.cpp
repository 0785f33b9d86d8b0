// Trials of a model's shapes: when they are made, what they say, and that they are kept.
#include <gtest/gtest.h>

#include "tests/tools/run_ebb.h"
#include "tools/trial.h"

namespace ebb {
namespace {

constexpr Gpt2Config kConfig{
    .vocabulary = 256, .max_positions = 64, .channels = 64, .num_layers = 4, .num_heads = 2};
constexpr TrialShape kShape{.config = kConfig, .batch_size = 1, .length = 32};
const DeviceOptions kOptions{.num_threads = 1, .arithmetic = Arithmetic::Fp32};

Machine machine_of(double flops_per_s) {
  return {.flops_per_s = flops_per_s, .device_bytes_per_s = 1e12, .update_bytes_per_s = 1e12};
}

TEST(Trial, IsNotMadeForLongKernelsNorLargeModels) {
  EXPECT_FALSE(try_model(kShape, kOptions, machine_of(1e3)));
  TrialShape large = kShape;
  auto& config = std::get<Gpt2Config>(large.config);
  config.channels = 8192;
  config.num_heads = 64;
  EXPECT_FALSE(try_model(large, kOptions, machine_of(1e18)));
}

TEST(Trial, IsMadeOnceAndSlowsTheRates) {
  const TemporaryFolder folder;
  MachineRates first{.machine = machine_of(2e9)};
  fit_to_model(first, kShape, kOptions, folder.path());
  EXPECT_GT(first.measured_s, 0);
  if (first.trial_ratio) {
    EXPECT_DOUBLE_EQ(first.machine.flops_per_s, 2e9 / *first.trial_ratio);
    EXPECT_NE(first.source().find("this model's steps"), std::string::npos);
  }
  MachineRates second{.machine = machine_of(2e9)};
  fit_to_model(second, kShape, kOptions, folder.path());
  EXPECT_EQ(second.measured_s, 0);
  EXPECT_EQ(second.trial_ratio, first.trial_ratio);
  TrialShape other = kShape;
  other.length = 16;
  MachineRates third{.machine = machine_of(2e9)};
  fit_to_model(third, other, kOptions, folder.path());
  EXPECT_GT(third.measured_s, 0);
}

TEST(Trial, LeavesEmulatedComputeAlone) {
  DeviceOptions options = kOptions;
  options.emulate_compute = ComputeRates{.flops_per_s = 1e12};
  MachineRates rates{.machine = machine_of(1e12)};
  fit_to_model(rates, kShape, options, {});
  EXPECT_EQ(rates.measured_s, 0);
  EXPECT_FALSE(rates.trial_ratio);
  EXPECT_EQ(rates.machine.flops_per_s, 1e12);
}

}  // namespace
}  // namespace ebb

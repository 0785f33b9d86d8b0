// How the tools measure a GPU, and what a plan reads from it. The GPU is emulated.
#include <gtest/gtest.h>

#include <functional>

#include "device/errors.h"
#include "system/memory_limits.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tools/machine_rates.h"
#include "tools/plan_setup.h"
#include "tools/train_setup.h"

namespace ebb::test {
namespace {

/// The limit of a run does not limit a measurement: 24 MiB are pinned and copied here. Then the
/// first kernel fails on purpose, because all kernels would take minutes on the emulated GPU.
TEST(MeasuringAGpu, IgnoresTheRunsLimitOfPinnedMemory) {
  const DeviceOptions options{
      .profile = {.kind = DeviceKind::Cuda, .num_threads = 1, .pinned_bytes = size_t{2} << 20},
      .fault = [](FaultSite site) { return site == FaultSite::Launch; }};
  EXPECT_THROW(measure_machine(options, DType::BF16, DType::BF16), DeviceError);
}

/// A plan for this machine uses the free memory of its GPU, as a run does.
TEST(ThisMachine, HasTheMemoryOfItsGpu) {
  const DeviceOptions gpu{.profile = {.kind = DeviceKind::Cuda, .num_threads = 1},
                          .memory_bytes = 1 << 20};
  const PlannedMachine machine = this_machine(gpu);
  const auto device = create_device({.profile = {.kind = DeviceKind::Cuda, .num_threads = 1}});
  EXPECT_EQ(machine.device_memory_bytes, device->info().memory_bytes);
  EXPECT_NE(machine.device_memory_bytes, machine.host_memory_bytes);
  EXPECT_EQ(machine.device, device->info().name);
  const PlannedMachine host =
      this_machine({.profile = {.kind = DeviceKind::Host, .num_threads = 1}});
  EXPECT_EQ(host.device_memory_bytes, host.host_memory_bytes);
}

/// A run on a GPU leaves host memory for CUDA and page tables, and a plan for this machine has the
/// same budget. A budget of the user is not reduced.
TEST(ThisMachine, HasTheHostBudgetOfARun) {
  const DeviceOptions gpu{.profile = {.kind = DeviceKind::Cuda, .num_threads = 1},
                          .memory_bytes = 1 << 20};
  const size_t usable_bytes = read_memory_limits().usable_bytes();
  const auto budget = static_cast<double>(budgets_of({}, gpu).host_memory.value());
  EXPECT_LT(budget, 0.99 * static_cast<double>(usable_bytes));
  // Between two readings the memory that is available may change a little.
  const double reserve = static_cast<double>(usable_bytes) - budget;
  EXPECT_NEAR(static_cast<double>(this_machine(gpu).host_memory_bytes), budget, 0.3 * reserve);
  TrainOptions flags;
  flags.host_memory = 2 * usable_bytes;
  EXPECT_EQ(budgets_of(flags, gpu).host_memory, flags.host_memory);
}

/// On the host, the budget of the user is not reduced to what is available to both tiers either.
TEST(BudgetsOfFlags, OfTheHostAreThoseOfTheUser) {
  const DeviceOptions host{.profile = {.kind = DeviceKind::Host, .num_threads = 1}};
  constexpr size_t kMuch = size_t{1} << 50;
  TrainOptions flags;
  EXPECT_LT(budgets_of(flags, host).total_memory, kMuch);
  flags.host_memory = size_t{1} << 20;
  EXPECT_GT(budgets_of(flags, host).total_memory, flags.host_memory);
  flags.host_memory = kMuch;
  EXPECT_EQ(budgets_of(flags, host).total_memory, kMuch);
  flags.device_memory = size_t{1} << 20;
  EXPECT_EQ(budgets_of(flags, host).total_memory, kMuch + (size_t{1} << 20));
  flags.device_memory = SIZE_MAX;
  EXPECT_EQ(budgets_of(flags, host).total_memory, SIZE_MAX);
}

/// A checkpoint stores which attention kernels the run uses.
TEST(DeviceOptionsOfFlags, NameTheAttentionKernels) {
  TrainOptions flags;
  flags.device = DeviceChoice::Cuda;
  EXPECT_EQ(device_options(flags).profile.attention, AttentionKernels::Ebb);
  EXPECT_EQ(attention_text(device_options(flags)), ", attention by Ebb's kernels");
  emulation::settings().attention_library = "cuDNN 9.11.0";
  EXPECT_EQ(device_options(flags).profile.attention, AttentionKernels::Cudnn);
  EXPECT_EQ(attention_text(device_options(flags)), ", attention by cuDNN 9.11.0");
  for (const auto& cannot : std::initializer_list<std::function<void(TrainOptions&)>>{
           [](TrainOptions& o) { o.dtype = DType::F32; }, [](TrainOptions& o) { o.dropout = 0.1f; },
           [](TrainOptions& o) { o.documents = "packed.documents"; }}) {
    TrainOptions other = flags;
    cannot(other);
    EXPECT_EQ(device_options(other).profile.attention, AttentionKernels::Ebb);
  }
  flags.attention = AttentionKernels::Ebb;
  EXPECT_EQ(device_options(flags).profile.attention, AttentionKernels::Ebb);
  TrainOptions host;
  host.device = DeviceChoice::Host;
  EXPECT_EQ(device_options(host).profile.attention, std::nullopt);
  emulation::settings() = {};
}

}  // namespace
}  // namespace ebb::test

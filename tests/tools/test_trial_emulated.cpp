// A trial of a model's shapes on a GPU, how one is measured, and what a plan finds of it.
#include <gtest/gtest.h>

#include <functional>

#include "device/errors.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tools/machine_rates.h"
#include "tools/plan_setup.h"
#include "tools/train_setup.h"
#include "tools/trial.h"

namespace ebb::test {
namespace {

/// Were the link not in the prediction, what it costs would be taken for slow kernels.
TEST(Trial, CountsAGpusLinkAndOnTheHostNone) {
  const Machine machine{.load_bytes_per_s = 1, .store_bytes_per_s = 2, .update_bytes_per_s = 3};
  const Machine gpu = machine_of_trial(machine, DeviceKind::Cuda);
  EXPECT_EQ(gpu.load_bytes_per_s, 1);
  EXPECT_EQ(gpu.store_bytes_per_s, 2);
  const Machine host = machine_of_trial(machine, DeviceKind::Host);
  EXPECT_EQ(host.load_bytes_per_s, 0);
  EXPECT_EQ(host.store_bytes_per_s, 0);
  EXPECT_EQ(host.update_bytes_per_s, 3);
}

TrialShape tiny_shape() {
  return {.config = Gpt2Config{.vocabulary = 97,
                               .max_positions = 8,
                               .channels = 64,
                               .num_layers = 2,
                               .num_heads = 2},
          .length = 8,
          .chunk_bytes = size_t{128} << 10};
}

/// A GPU's trial runs to its end.
TEST(Trial, IsMadeOnAGpu) {
  emulation::settings().granularity = size_t{64} << 10;
  EXPECT_NO_THROW(try_model(tiny_shape(), {.kind = DeviceKind::Cuda, .num_threads = 1},
                            {.flops_per_s = 1e12, .device_bytes_per_s = 1e12}));
  emulation::settings() = {};
}

TEST(Trial, IsNoneWhereMemoryDoesNotSuffice) {
  const DeviceOptions options{
      .num_threads = 1, .fault = [](FaultSite site) { return site == FaultSite::Allocation; }};
  EXPECT_EQ(try_model(tiny_shape(), options, {.flops_per_s = 1e12, .device_bytes_per_s = 1e12}),
            std::nullopt);
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

/// A plan for this machine has the memory that a run would find, whatever the host has.
TEST(ThisMachine, HasTheMemoryOfItsGpu) {
  const DeviceOptions gpu{.kind = DeviceKind::Cuda, .memory_bytes = 1 << 20, .num_threads = 1};
  const PlannedMachine machine = this_machine(gpu);
  const auto device = create_device({.kind = DeviceKind::Cuda, .num_threads = 1});
  EXPECT_EQ(machine.device_memory_bytes, device->info().memory_bytes);
  EXPECT_NE(machine.device_memory_bytes, machine.host_memory_bytes);
  EXPECT_EQ(machine.device, device->info().name);
  const PlannedMachine host = this_machine({.kind = DeviceKind::Host, .num_threads = 1});
  EXPECT_EQ(host.device_memory_bytes, host.host_memory_bytes);
}

/// A checkpoint keeps whose kernels a run was made with.
TEST(DeviceOptionsOfFlags, SayWhoseAttentionItIs) {
  TrainOptions flags;
  flags.device = DeviceChoice::Cuda;
  EXPECT_EQ(device_options(flags).attention, AttentionKernels::Ebb);
  EXPECT_EQ(attention_text(device_options(flags)), "");
  emulation::settings().attention_library = "cuDNN 9.11.0";
  EXPECT_EQ(device_options(flags).attention, AttentionKernels::Cudnn);
  EXPECT_EQ(attention_text(device_options(flags)), ", attention by cuDNN 9.11.0");
  for (const auto& cannot : std::initializer_list<std::function<void(TrainOptions&)>>{
           [](TrainOptions& o) { o.dtype = DType::F32; }, [](TrainOptions& o) { o.dropout = 0.1f; },
           [](TrainOptions& o) { o.documents = "packed.documents"; }}) {
    TrainOptions other = flags;
    cannot(other);
    EXPECT_EQ(device_options(other).attention, AttentionKernels::Ebb);
  }
  flags.attention = AttentionKernels::Ebb;
  EXPECT_EQ(device_options(flags).attention, AttentionKernels::Ebb);
  TrainOptions host;
  host.device = DeviceChoice::Host;
  EXPECT_EQ(device_options(host).attention, std::nullopt);
  emulation::settings() = {};
}

}  // namespace
}  // namespace ebb::test

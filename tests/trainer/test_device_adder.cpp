// Adding the sums of groups on a GPU whose home is not pinned.
#include <gtest/gtest.h>

#include <future>

#include "device/planes.h"
#include "model_zoo/gpt2.h"
#include "scheduler/run/device_adder.h"
#include "scheduler/search/memory_sizes.h"
#include "tests/cuda_emulation/emulated_backend.h"
#include "tests/trainer/cases.h"

namespace ebb::test {
namespace {

/// Stores of the plan pass through the store ring in order, and a store may wait for an addition:
/// one that uses the slot of its sums again. If the addition passed through the ring, too, it could
/// wait there for such a store for ever.
TEST_F(EmulatedBackend, AnAdditionDoesNotWaitInTheRingForAStoreThatWaitsForIt) {
  const TrainingCase run{.accumulation = 3,
                         .pinned_bytes = size_t{3} << 20,
                         .device = DeviceKind::Cuda,
                         .sums_on_devices = true,
                         .groups = 2};
  const Gpt2 model(small_gpt(), kMicroBatchSize, kLength, run.dtype);
  const Preparation prepared = prepare_case(model, run);
  const Layout& layout = *prepared.layout;
  const auto device = create_case_device(prepared, run);
  Buffer pinned = device->allocate(MemoryKind::Pinned, adder_pinned_bytes(prepared), "sums");
  const Home home(*device, layout, state_planes(run.dtype), home_options(prepared.plan));
  ASSERT_GT(device->staged_bytes(), partial_norm_bytes(layout));  // they are the last of the home
  const SharedDeviceMemory slots(*device, kSumsOfGroups,
                                 layout.chunk_bytes() * prepared.plan.sum_slots, nullptr);
  for (uint32_t s = 0; s < layout.num_chunks(Space::GradientSums); ++s) {
    home.set_slot(s, BufferIndex(s % prepared.plan.sum_slots));
  }
  DeviceAdder adder(*device, layout, StoredSums(layout, home, &slots, prepared.division),
                    std::vector<bool>(layout.num_parameters(), true), std::move(pinned));
  ThreadTeam team(1);

  const auto update = device->create_stream(StreamKind::Update);
  const auto store = device->create_stream(StreamKind::Store);
  const auto added = device->create_event();
  const std::span<double> partials = home.partial_norms();
  const auto add = [&] {
    adder.add(team, ChunkIndex(0), home.gradient_buffer(BufferIndex(0)), partials.first(1));
  };
  add();  // loads the kernels, which must not happen while a stream waits
  std::promise<void> is_submitted;
  update->submit({.name = "add"}, [&] {
    is_submitted.get_future().wait();
    add();
  });
  update->record(*added);
  store->wait(*added);
  store->copy(&partials.back(), slots.mine(), sizeof(double), CopyKind::Store);
  is_submitted.set_value();
  update->synchronize();
  store->synchronize();
}

}  // namespace
}  // namespace ebb::test

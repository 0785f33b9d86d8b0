// A run that hangs if a thread stands in a full queue: the queue's first entry waits for work that
// another thread makes possible, and that thread's call waits for the one in the queue.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/cuda_emulation/emulated_backend.h"
#include "tests/device/gate.h"

namespace ebb::test {

/// Far more than fit into a queue.
inline constexpr int kManyOperations = 1500;
/// A thread that is neither done nor blocked after this time only makes the run easier.
inline constexpr std::chrono::milliseconds kUntilItBlocks{100};

/// A compute stream waits for the update stream, and one thread submits many operations behind this
/// wait. Then `meanwhile` runs on another thread. Then the update stream waits for a store, and the
/// compute stream goes on.
template <class Meanwhile>
void run_with_a_full_queue(emulation::FullQueue what_blocks, const Meanwhile& meanwhile) {
  emulation::settings().full_queue = what_blocks;
  const auto device = create_gpu();
  const auto released = device->create_event(), recorded = device->create_event(),
             stored = device->create_event();
  const auto compute = device->create_stream(StreamKind::Compute);
  const auto store = device->create_stream(StreamKind::Store);
  const auto update = device->create_stream(StreamKind::Update);
  const auto blocks = device->create_blocks(size_t{2} << 20, 1);
  std::byte* const place = blocks->reserve(size_t{2} << 20);
  Gate gate;
  store->record(*stored);
  update->submit({}, [&] { gate.pass(); });
  update->wait(*stored);
  update->record(*released);
  compute->wait(*released);
  std::thread submits([&] {
    for (int i = 0; i < kManyOperations; ++i) compute->record(*recorded);
  });
  std::this_thread::sleep_for(kUntilItBlocks);
  std::thread calls([&] { meanwhile(*device, *blocks, place, *store, gate); });
  std::this_thread::sleep_for(kUntilItBlocks);
  if (what_blocks == emulation::FullQueue::BlocksDriver) gate.open();
  calls.join();
  submits.join();
  compute->synchronize();
}

/// The thread maps a block. The update thread's wait comes after it in the driver's lock.
inline void map_while_a_queue_is_full() {
  run_with_a_full_queue(emulation::FullQueue::BlocksDriver,
                        [](Device&, Blocks& blocks, std::byte* place, Stream& store, Gate&) {
                          blocks.map(0, place, store);
                        });
}

/// The thread makes an event before it lets the update stream go on.
inline void make_an_event_while_a_queue_is_full() {
  run_with_a_full_queue(emulation::FullQueue::BlocksEventCreation,
                        [](Device& device, Blocks&, std::byte*, Stream&, Gate& gate) {
                          (void)device.create_event();
                          gate.open();
                        });
}

}  // namespace ebb::test

// Threads that submit much work do not stand in the full queue of a stream (cuda/in_flight.h).
// test_unbounded.cpp runs the same without a bound, and hangs.
#include <gtest/gtest.h>

#include "cuda/kernel_stream.h"
#include "device/errors.h"
#include "device/kernels.h"
#include "tests/cuda_emulation/full_queue.h"

namespace ebb::test {
namespace {

class FullQueueTest : public EmulatedBackend {};

TEST_F(FullQueueTest, ABlockIsMapped) { map_while_a_queue_is_full(); }
TEST_F(FullQueueTest, AnEventIsMade) { make_an_event_while_a_queue_is_full(); }

/// Each kind of operation behind a wait for a host thread, also copies of many parts through a
/// ring.
TEST_F(FullQueueTest, NoKindOfOperationFillsTheQueue) {
  constexpr size_t kMiB = size_t{1} << 20, kPinned = 2 * kMiB, kBytes = 8 * kMiB;
  const auto device = create_gpu({.profile = {.pinned_bytes = kPinned}});
  const Buffer home = device->allocate(MemoryKind::Home, kBytes, "home");
  const Buffer there = device->allocate(MemoryKind::Device, kBytes, "there");
  const Tensor y{there.data(), DType::F32, {1024}};
  const auto event = device->create_event(), other = device->create_event();
  const auto first = device->create_stream(StreamKind::Compute);
  device->kernels().submit(*first, Add{y, y, y});  // loads the code
  first->synchronize();
  first->record(*other);
  const std::pair<const char*, std::function<void(Stream&)>> operations[] = {
      {"a record", [&](Stream& stream) { stream.record(*event); }},
      {"a launch",
       [&](Stream& stream) {
         device->kernels().submit(stream, Add{y, y, y});
       }},
      {"a launch of many kernels",
       [&](Stream& stream) {
         constexpr int kMany = 200;
         const auto launch = [to = there.data()](cudaStream_t s) {
           for (int i = 0; i < kMany; ++i) (void)cudaMemsetAsync(to, 0, 4, s);
         };
         dynamic_cast<KernelStream&>(stream).launch({.name = "many"}, launch, kMany);
       }},
      {"a launch of very many kernels, and records after it",
       [&](Stream& stream) {
         constexpr int kVeryMany = 600;
         const auto launch = [to = there.data()](cudaStream_t s) {
           for (int i = 0; i < kVeryMany; ++i) (void)cudaMemsetAsync(to, 0, 4, s);
         };
         dynamic_cast<KernelStream&>(stream).launch({.name = "very many"}, launch, kVeryMany);
         for (int i = 0; i < kVeryMany; ++i) stream.record(*event);
       }},
      {"a wait and a launch",
       [&](Stream& stream) {
         stream.wait(*other);
         device->kernels().submit(stream, Add{y, y, y});
       }},
      {"a load through a ring",
       [&](Stream& stream) {
         stream.wait(*other);
         stream.copy(there.data(), home.data(), kBytes, CopyKind::Load);
       }},
      {"a store through a ring",
       [&](Stream& stream) {
         stream.copy(home.data(), there.data(), kBytes, CopyKind::Store);
         stream.record(*event);
       }},
      {"a host function", [&](Stream& stream) { stream.submit({}, [] {}); }},
  };
  for (const auto& [name, operation] : operations) {
    SCOPED_TRACE(name);
    const auto released = device->create_event();
    Gate gate;
    const auto compute = device->create_stream(StreamKind::Compute);
    const auto update = device->create_stream(StreamKind::Update);
    update->submit({}, [&] { gate.pass(); });
    update->record(*released);
    compute->wait(*released);
    std::thread submits([&, &operation = operation] {
      for (int i = 0; i < kManyOperations / 2; ++i) operation(*compute);
    });
    std::this_thread::sleep_for(kUntilItBlocks);
    EXPECT_EQ(emulation::num_full_queues(), 0u);
    gate.open();
    submits.join();
    EXPECT_NO_THROW(compute->synchronize());
  }
}

}  // namespace
}  // namespace ebb::test

// ThreadSanitizer must report missing waits between streams, which are real threads for this
// reason. Each test runs a program without a wait, and the same program with the wait, in child
// processes.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <tuple>

#include "device/device.h"

namespace ebb {
namespace {

constexpr size_t kBytes = size_t{2} << 20;

/// Two streams and two blocks. The first block is mapped at `place`.
struct Machine {
  explicit Machine(DeviceKind kind)
      : device(create_device({.profile = {.kind = kind, .num_threads = 1}})) {
    blocks->map(0, place, *load);
  }

  std::unique_ptr<Device> device;
  Buffer pinned = device->allocate(MemoryKind::Pinned, kBytes, "pinned");
  std::unique_ptr<Blocks> blocks = device->create_blocks(kBytes, 2);
  std::byte* place = blocks->reserve(kBytes);
  std::unique_ptr<Event> done = device->create_event();
  std::unique_ptr<Stream> load = device->create_stream(StreamKind::Load);
  std::unique_ptr<Stream> compute = device->create_stream(StreamKind::Compute);

  void read_place() {
    compute->submit({}, [this] {
      for (size_t i = 0; i < kBytes; i += 64) sum_ += int(place[i]);
    });
  }

 private:
  int sum_ = 0;
};

/// A kernel reads the bytes that a load writes.
void load_then_read(DeviceKind kind, bool wait) {
  Machine machine(kind);
  machine.load->copy(machine.place, machine.pinned.data(), kBytes, CopyKind::Load);
  machine.load->record(*machine.done);
  if (wait) machine.compute->wait(*machine.done);
  machine.read_place();
}

/// A block is mapped where a kernel may still read another. Without the pause the kernel would
/// fault instead.
void read_then_evict(DeviceKind kind, bool wait) {
  Machine machine(kind);
  machine.read_place();
  machine.compute->record(*machine.done);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  if (wait) machine.done->synchronize();
  machine.blocks->map(1, machine.place, *machine.load);
}

/// A block is loaded again while a kernel may still read the old bytes.
void read_then_load(DeviceKind kind, bool wait) {
  Machine machine(kind);
  machine.read_place();
  machine.compute->record(*machine.done);
  if (wait) machine.load->wait(*machine.done);
  machine.load->copy(machine.place, machine.pinned.data(), kBytes, CopyKind::Load);
}

using Program = void (*)(DeviceKind, bool wait);
class RacesDeathTest : public testing::TestWithParam<std::tuple<Program, DeviceKind>> {};

TEST_P(RacesDeathTest, AMissingWaitIsReported) {
#if !defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "only ThreadSanitizer reports this; build with -DEBB_SANITIZE=thread";
#endif
  const auto [program, kind] = GetParam();
  if (kind == DeviceKind::Cuda && probe_cuda().devices.empty()) GTEST_SKIP() << probe_cuda().note;
  constexpr int kReported = 66;  // ThreadSanitizer's exit status
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT((program(kind, false), std::exit(0)), testing::ExitedWithCode(kReported),
              "data race");
  EXPECT_EXIT((program(kind, true), std::exit(0)), testing::ExitedWithCode(0), "");
}

INSTANTIATE_TEST_SUITE_P(Programs, RacesDeathTest,
                         testing::Combine(testing::Values(&load_then_read, &read_then_evict,
                                                          &read_then_load),
                                          testing::Values(DeviceKind::Host, DeviceKind::Cuda)));

}  // namespace
}  // namespace ebb

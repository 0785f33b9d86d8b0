// Planted ordering defects, which ThreadSanitizer must report: streams are real threads so that it
// can. Each test runs its defect in a child process and the same program with the wait in place
// beside it.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "device/device.h"

namespace ebb {
namespace {

constexpr size_t kBytes = 64 * 4096;

/// Two streams with a block under the first of two places.
struct Machine {
  std::unique_ptr<Device> device = create_device({.num_threads = 1});
  Buffer home = device->allocate(MemoryKind::Pinned, kBytes, "home");
  std::unique_ptr<Blocks> blocks = device->create_blocks(kBytes, 1);
  std::byte* first = blocks->reserve(2 * kBytes);
  std::byte* second = first + kBytes;
  std::unique_ptr<Event> done = device->create_event();
  std::unique_ptr<Stream> load = device->create_stream(StreamRole::Load);
  std::unique_ptr<Stream> compute = device->create_stream(StreamRole::Compute);

  Machine() { blocks->map(0, first); }
  void read_first() {
    compute->call({}, [this] {
      for (size_t i = 0; i < kBytes; i += 64) sum_ += int(first[i]);
    });
  }

 private:
  int sum_ = 0;
};

/// A kernel reads what a load writes.
void load_then_read(bool wait) {
  Machine machine;
  machine.load->copy(machine.first, machine.home.data(), kBytes, CopyKind::Load);
  machine.load->record(*machine.done);
  if (wait) machine.compute->wait(*machine.done);
  machine.read_first();
}

/// A block leaves while a kernel may still read it. The pause keeps the defect from being a plain
/// fault.
void read_then_evict(bool wait) {
  Machine machine;
  machine.read_first();
  machine.compute->record(*machine.done);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  if (wait) machine.done->synchronize();
  machine.blocks->map(0, machine.second);
}

/// A block is filled again while a kernel may still read what was there.
void read_then_load(bool wait) {
  Machine machine;
  machine.read_first();
  machine.compute->record(*machine.done);
  if (wait) machine.load->wait(*machine.done);
  machine.load->copy(machine.first, machine.home.data(), kBytes, CopyKind::Load);
}

class RacesDeathTest : public testing::TestWithParam<void (*)(bool)> {};

TEST_P(RacesDeathTest, AMissingWaitIsReported) {
#if !defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "only ThreadSanitizer sees this; build with -DEBB_SANITIZE=thread";
#endif
  constexpr int kReported = 66;  // ThreadSanitizer's exit status
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT((GetParam()(false), std::exit(0)), testing::ExitedWithCode(kReported), "data race");
  EXPECT_EXIT((GetParam()(true), std::exit(0)), testing::ExitedWithCode(0), "");
}

INSTANTIATE_TEST_SUITE_P(Planted, RacesDeathTest,
                         testing::Values(&load_then_read, &read_then_evict, &read_then_load));

}  // namespace
}  // namespace ebb

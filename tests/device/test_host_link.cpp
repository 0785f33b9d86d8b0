// The speed of an emulated link. Lower bounds of times are exact. Upper bounds must hold in one of
// several tries, because the machine may be busy.
#include <gtest/gtest.h>

#include <vector>

#include "device/device.h"
#include "device/host/host_link.h"
#include "system/clock.h"
#include "tests/device/tries.h"

namespace ebb::tests_of_host_link {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(Link, ACopyTakesTheTimeOfItsBytes) {
  Link link(1e9);
  std::vector<char> from(20 * kMiB, 'x'), to(20 * kMiB);
  const double begin_s = steady_now_s();
  const Link::Ended ended = link.copy(to.data(), from.data(), from.size(), begin_s);
  EXPECT_DOUBLE_EQ(ended.ideal_s, begin_s + 20 * kMiB / 1e9);
  EXPECT_GE(ended.here_s, ended.ideal_s);
  EXPECT_GE(steady_now_s(), ended.here_s);
  EXPECT_TRUE(to == from);
}

TEST(Link, ALateCopyDoesNotSleep) {
  Link link(1e6);
  std::vector<char> from(1000, 'x'), to(1000);
  const double now_s = steady_now_s();
  const double late_s = std::min(100.0, now_s / 2);  // the clock may have started just now
  const double ready_s = now_s - late_s;
  const Link::Ended ended = link.copy(to.data(), from.data(), from.size(), ready_s);
  const double end_s = ended.ideal_s;
  EXPECT_DOUBLE_EQ(end_s, ready_s + 1e-3);
  EXPECT_LT(end_s, steady_now_s() - 0.9 * late_s);  // no sleep
  EXPECT_GE(ended.here_s, now_s);                   // the real time at which the bytes arrived
  // The link was busy until end_s, so a copy that was ready earlier starts then.
  EXPECT_DOUBLE_EQ(link.copy(to.data(), from.data(), 1000, ready_s / 2).ideal_s, end_s + 1e-3);
}

TEST(Link, LoadsAndStoresOverlapAtTheirOwnRates) {
  constexpr double kLoadRate = 20e6, kStoreRate = 10e6;
  constexpr size_t kCopies = 4, kLoadBytes = kMiB, kStoreBytes = kMiB / 2;
  constexpr double kIdeal_s = kCopies * kLoadBytes / kLoadRate;  // 0.21 s, the same for both
  auto device = create_device({.profile = {.num_threads = 1},
                               .load_bytes_per_s = kLoadRate,
                               .store_bytes_per_s = kStoreRate});
  Buffer pinned = device->allocate(MemoryKind::Pinned, kLoadBytes + kStoreBytes, "pinned");
  Buffer on_device = device->allocate(MemoryKind::Device, kLoadBytes + kStoreBytes, "device");
  auto load = device->create_stream(StreamKind::Load);
  auto store = device->create_stream(StreamKind::Store);
  EXPECT_TRUE(seen_once([&] {
    const double begin_s = device->now_s();
    for (size_t i = 0; i < kCopies; ++i) {
      load->copy(on_device.data(), pinned.data(), kLoadBytes, CopyKind::Load);
      store->copy(pinned.data() + kLoadBytes, on_device.data() + kLoadBytes, kStoreBytes,
                  CopyKind::Store);
    }
    load->synchronize();
    EXPECT_GE(device->now_s() - begin_s, kIdeal_s);
    store->synchronize();
    const double elapsed_s = device->now_s() - begin_s;
    EXPECT_GE(elapsed_s, kIdeal_s);
    return elapsed_s < 1.6 * kIdeal_s;  // without overlap 2 * kIdeal_s
  }));
  EXPECT_EQ(load->stats().copied_bytes % (kCopies * kLoadBytes), 0u);
}

TEST(Link, StreamsOfOneDirectionShareTheLink) {
  constexpr double kRate = 20e6;
  auto device = create_device({.profile = {.num_threads = 1}, .load_bytes_per_s = kRate});
  Buffer pinned = device->allocate(MemoryKind::Pinned, 2 * kMiB, "pinned");
  Buffer on_device = device->allocate(MemoryKind::Device, 2 * kMiB, "device");
  auto one = device->create_stream(StreamKind::Load);
  auto two = device->create_stream(StreamKind::Load);
  const double begin_s = device->now_s();
  one->copy(on_device.data(), pinned.data(), kMiB, CopyKind::Load);
  two->copy(on_device.data() + kMiB, pinned.data() + kMiB, kMiB, CopyKind::Load);
  one->synchronize();
  two->synchronize();
  EXPECT_GE(device->now_s() - begin_s, 2 * kMiB / kRate);
}

TEST(Link, ACopyTakesWallTimeAndLittleProcessorTime) {
  constexpr size_t kBytes = 4 * kMiB;
  constexpr double kRate = 20e6, kIdeal_s = kBytes / kRate;  // 0.21 s
  auto device = create_device({.profile = {.num_threads = 1}, .load_bytes_per_s = kRate});
  Buffer pinned = device->allocate(MemoryKind::Pinned, kBytes, "pinned");
  Buffer on_device = device->allocate(MemoryKind::Device, kBytes, "device");
  auto load = device->create_stream(StreamKind::Load);
  EXPECT_TRUE(seen_once([&] {
    const double begin_s = device->now_s(), before_s = process_cpu_s();
    load->copy(on_device.data(), pinned.data(), kBytes, CopyKind::Load);
    load->synchronize();
    EXPECT_GE(device->now_s() - begin_s, kIdeal_s);
    const double processor_s = process_cpu_s() - before_s;
    EXPECT_GT(processor_s, kBytes / 200e9);  // no memory is faster
    return processor_s < 0.5 * kIdeal_s;
  }));
}

}  // namespace
}  // namespace ebb::tests_of_host_link

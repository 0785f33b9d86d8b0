#include <gtest/gtest.h>
#include <sys/mman.h>

#include <fstream>

#include "tools/machine.h"

namespace ebb {
namespace {

TEST(Machine, SaysWhatIsHere) {
  const MachineInfo machine = read_machine();
  EXPECT_GE(machine.num_threads, machine.num_cores);
  EXPECT_GE(machine.num_cores, 1);
  EXPECT_GE(machine.num_threads, machine.num_usable_threads);
  EXPECT_FALSE(machine.nodes.empty());
  EXPECT_FALSE(machine.instruction_set.empty());
}

TEST(Machine, MemoryIsBoundedByTheCgroup) {
  const MemoryLimits limits = read_memory_limits();
  EXPECT_GT(limits.available_bytes, 0u);
  EXPECT_LE(limits.usable_bytes(), limits.total_bytes);
  EXPECT_EQ((MemoryLimits{.total_bytes = 100, .available_bytes = 80}.usable_bytes()), 80u);
  MemoryLimits limited{.total_bytes = 100, .available_bytes = 80, .cgroup_limit_bytes = 60};
  EXPECT_EQ(limited.usable_bytes(), 60u);
  limited.cgroup_used_bytes = 50;
  EXPECT_EQ(limited.usable_bytes(), 10u);
  limited.cgroup_used_bytes = 70;
  EXPECT_EQ(limited.usable_bytes(), 0u);
}

// An emulated link takes exactly bytes / bandwidth, and more only where the machine is late.
TEST(Machine, TheLinkIsMeasuredEachWay) {
  const auto device =
      create_device({.num_threads = 1, .load_bytes_per_s = 2e8, .store_bytes_per_s = 1e8});
  const LinkBandwidth link = measure_link(*device, size_t{4} << 20);
  EXPECT_LE(link.load_bytes_per_s, 2.0001e8);
  EXPECT_GT(link.load_bytes_per_s, 1e8);
  EXPECT_LE(link.store_bytes_per_s, 1.0001e8);
  EXPECT_GT(link.store_bytes_per_s, 5e7);
  EXPECT_LE(link.both_bytes_per_s, 2.0001e8);
  EXPECT_GT(link.both_bytes_per_s, 1e8);
}

constexpr size_t kTouched = size_t{64} << 20;

void touch_memory() {
  void* memory = ::mmap(nullptr, kTouched, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ::munmap(memory, kTouched);
}

TEST(Machine, PeakRssGrowsWithTouchedMemory) {
  reset_peak_rss();  // which tests before this one may have left far above
  const size_t before = peak_rss_bytes();
  touch_memory();
  EXPECT_GE(peak_rss_bytes(), before + kTouched * 9 / 10);
}

TEST(Machine, PeakRssBeginsAnew) {
  touch_memory();
  const size_t peak = peak_rss_bytes();
  std::ofstream("/proc/self/clear_refs") << "5";
  if (peak_rss_bytes() > peak - kTouched / 2) GTEST_SKIP() << "not on this system";
  touch_memory();
  EXPECT_GT(peak_rss_bytes(), peak - kTouched / 2);
  reset_peak_rss();
  EXPECT_LT(peak_rss_bytes(), peak - kTouched / 2);
}

}  // namespace
}  // namespace ebb

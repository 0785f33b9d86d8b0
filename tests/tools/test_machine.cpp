#include <gtest/gtest.h>
#include <sys/mman.h>

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

TEST(Machine, PeakRssGrowsWithTouchedMemory) {
  constexpr size_t kBytes = size_t{64} << 20;
  const size_t before = peak_rss_bytes();
  void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_GE(peak_rss_bytes(), before + kBytes * 9 / 10);
  ::munmap(memory, kBytes);
  EXPECT_GE(peak_rss_bytes(), before + kBytes * 9 / 10);
}

}  // namespace
}  // namespace ebb

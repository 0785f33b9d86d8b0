#include <gtest/gtest.h>
#include <sys/mman.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/tools/run_ebb.h"
#include "tools/machine.h"

namespace ebb {
namespace {

TEST(Machine, IsDescribed) {
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

/// The outer cgroup has the smaller limit. Of its used memory, 300 bytes are cached files, which
/// the kernel can free.
TEST(Machine, CachedFilesDoNotCountAsUsed) {
  struct Case {
    CgroupVersion version;
    std::string limit, used, files;
  };
  for (const Case& c :
       {Case{CgroupVersion::One, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"},
        Case{CgroupVersion::Two, "memory.max", "memory.current", ""}}) {
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder.path() / "outer/inner");
    folder.write("outer/" + c.limit, "1000\n");
    folder.write("outer/" + c.used, "700\n");
    folder.write("outer/memory.stat", "anon 400\nshmem 7\n" + c.files + "inactive_file 100\n" +
                                          c.files + "active_file 200\n");
    folder.write("outer/inner/" + c.limit, "5000\n");
    MemoryLimits limits{.total_bytes = 8000, .available_bytes = 8000};
    read_cgroup(limits, {c.version, folder.path().string(), "/outer/inner"});
    EXPECT_EQ(limits.cgroup_limit_bytes, 1000u);
    EXPECT_EQ(limits.cgroup_used_bytes, 400u);
    EXPECT_EQ(limits.usable_bytes(), 600u);
  }
}

TEST(Machine, TheSmallestCpuQuotaCounts) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() / "outer/inner");
  const auto quota = [&](CgroupVersion version) {
    return cpu_quota({version, folder.path().string(), "/outer/inner"});
  };
  folder.write("outer/inner/cpu.max", "max 100000\n");
  folder.write("outer/inner/cpu.cfs_quota_us", "-1\n");
  folder.write("outer/inner/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(CgroupVersion::One), std::nullopt);
  EXPECT_EQ(quota(CgroupVersion::Two), std::nullopt);
  folder.write("outer/cpu.max", "250000 100000\n");
  folder.write("outer/cpu.cfs_quota_us", "50000\n");
  folder.write("outer/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(CgroupVersion::Two), 2.5);
  EXPECT_EQ(quota(CgroupVersion::One), 0.5);
  folder.write("cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(CgroupVersion::Two), 1.5);
}

// A copy over an emulated link takes bytes / bandwidth, or longer if the machine is busy.
TEST(Machine, TheLinkIsMeasuredInEachDirection) {
  const auto device = create_device(
      {.profile = {.num_threads = 1}, .load_bytes_per_s = 2e8, .store_bytes_per_s = 1e8});
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
  reset_peak_rss();  // earlier tests may have left a high value
  const size_t before = peak_rss_bytes();
  touch_memory();
  EXPECT_GE(peak_rss_bytes(), before + kTouched * 9 / 10);
}

TEST(Machine, PeakRssCanBeReset) {
  touch_memory();
  const size_t peak = peak_rss_bytes();
  std::ofstream("/proc/self/clear_refs") << "5";
  if (peak_rss_bytes() > peak - kTouched / 2) GTEST_SKIP() << "this system cannot reset the peak";
  touch_memory();
  EXPECT_GT(peak_rss_bytes(), peak - kTouched / 2);
  reset_peak_rss();
  EXPECT_LT(peak_rss_bytes(), peak - kTouched / 2);
}

}  // namespace
}  // namespace ebb

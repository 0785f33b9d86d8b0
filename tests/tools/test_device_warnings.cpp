#include <gtest/gtest.h>

#include <filesystem>

#include "tests/tools/run_ebb.h"
#include "tools/device_warnings.h"

namespace ebb {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

/// Two NUMA nodes of 64 GiB and a GPU on the second. There is no other reason for a warning.
WarningFacts two_nodes() {
  return {.machine = {.cpu = "",
                      .instruction_set = "",
                      .num_cores = 32,
                      .num_threads = 64,
                      .num_usable_threads = 64,
                      .nodes = {{0, 64 * kGiB, 16}, {1, 64 * kGiB, 16}}},
          .limits = {.total_bytes = 128 * kGiB, .available_bytes = 120 * kGiB},
          .huge_pages = HugePages::Given,
          .gpus = {{"0000:17:00.0", 1}}};
}

/// One NUMA node and no reason for a warning.
WarningFacts well() {
  WarningFacts facts = two_nodes();
  facts.machine.nodes = {{0, 128 * kGiB, 32}};
  facts.gpus[0].node = 0;
  return facts;
}

TEST(DeviceWarnings, NoneWithoutAReason) {
  EXPECT_TRUE(warnings_for(well()).empty());
  WarningFacts one_node_unknown = well();
  one_node_unknown.gpus[0].node.reset();
  EXPECT_TRUE(warnings_for(one_node_unknown).empty());
}

TEST(DeviceWarnings, ASmallMemlockLimitWithAGpu) {
  WarningFacts facts = well();
  facts.limits.memlock_bytes = 8 << 20;
  EXPECT_SAYS(memlock_warning(facts).value(), "limit of 8 MiB");
  EXPECT_SAYS(memlock_warning(facts).value(), "120 GiB that");
  EXPECT_SAYS(memlock_warning(facts).value(), "ulimit -l unlimited");
  facts.limits.memlock_bytes = 120 * kGiB - 1;
  EXPECT_TRUE(memlock_warning(facts));
  facts.limits.memlock_bytes = 120 * kGiB;  // all memory that a run may use
  EXPECT_FALSE(memlock_warning(facts));
  facts.limits.memlock_bytes = 8 << 20;
  facts.gpus.clear();
  EXPECT_FALSE(memlock_warning(facts));
}

/// The advice names the limit that was reached. A given --pinned is not always this limit.
TEST(DeviceWarnings, HomeMemoryThatIsNotPinnedNamesTheLimit) {
  EXPECT_FALSE(staging_warning({.pinned_bytes = 6 * kGiB}, {}));
  Staging staging{.pinned_bytes = 6 * kGiB, .staged_bytes = 10 * kGiB, .limit_bytes = 6 * kGiB};
  MemoryLimits limits{.memlock_bytes = 8 << 20};
  EXPECT_SAYS(staging_warning(staging, limits).value(), "6 GiB of host memory are pinned; 10 GiB");
  EXPECT_SAYS(staging_warning(staging, limits).value(),
              "the limit is --pinned 6 GiB, and 16 GiB would be enough");
  EXPECT_EQ(staging_warning(staging, limits)->find("ulimit"), std::string::npos);
  staging.limit_bytes = 12 * kGiB;
  staging.refused = true;
  EXPECT_SAYS(staging_warning(staging, limits).value(), "`ulimit -l` is 8 MiB: raise this limit");
  EXPECT_EQ(staging_warning(staging, limits)->find("--pinned"), std::string::npos);
  limits.memlock_bytes.reset();
  EXPECT_SAYS(staging_warning(staging, limits).value(), "although `ulimit -l` allows it");
  limits.memlock_bytes = 16 * kGiB;
  EXPECT_SAYS(staging_warning(staging, limits).value(), "although `ulimit -l` allows it");
}

TEST(DeviceWarnings, MemoryOfAnotherNumaNode) {
  EXPECT_SAYS(far_memory_warning(two_nodes()).value(), "at 0000:17:00.0 is on NUMA node 1");
  EXPECT_SAYS(far_memory_warning(two_nodes()).value(), "64 GiB of 128 GiB are on other nodes");
  EXPECT_SAYS(far_memory_warning(two_nodes()).value(), "--cpunodebind=1 --membind=1");
  WarningFacts facts = two_nodes();
  facts.gpus[0].node.reset();
  EXPECT_FALSE(far_memory_warning(facts));
  facts.gpus.clear();
  EXPECT_FALSE(far_memory_warning(facts));
}

TEST(DeviceWarnings, NoHugePages) {
  WarningFacts facts = well();
  facts.huge_pages = HugePages::Never;
  EXPECT_SAYS(huge_page_warning(facts).value(), "echo madvise > /sys/kernel/mm");
  facts.huge_pages = HugePages::Unknown;
  EXPECT_FALSE(huge_page_warning(facts));
  EXPECT_EQ(parse_huge_pages("always madvise [never]"), HugePages::Never);
  EXPECT_EQ(parse_huge_pages("always [madvise] never"), HugePages::Given);
  EXPECT_EQ(parse_huge_pages("[always] madvise never"), HugePages::Given);
  EXPECT_EQ(parse_huge_pages(""), HugePages::Unknown);
}

TEST(DeviceWarnings, ACgroupBelowTheMachine) {
  WarningFacts facts = well();
  facts.limits.cgroup_limit_bytes = 16 * kGiB;
  facts.limits.cgroup_used_bytes = 2 * kGiB;
  EXPECT_SAYS(cgroup_warning(facts).value(),
              "allows 16 GiB of the machine's 128 GiB, of which 2 GiB are in use");
  facts.limits.cgroup_limit_bytes = 128 * kGiB;
  EXPECT_FALSE(cgroup_warning(facts));
}

TEST(DeviceWarnings, FewerThreadsThanTheMachineHas) {
  WarningFacts facts = well();
  facts.machine.num_usable_threads = 8;
  EXPECT_SAYS(affinity_warning(facts).value(), "8 of 64 hardware threads");
}

TEST(DeviceWarnings, TheMostImportantComesFirst) {
  WarningFacts facts = two_nodes();
  facts.limits.cgroup_limit_bytes = 16 * kGiB;
  facts.limits.memlock_bytes = 8 << 20;
  facts.huge_pages = HugePages::Never;
  facts.machine.num_usable_threads = 8;
  const auto warnings = warnings_for(facts);
  ASSERT_EQ(warnings.size(), 5u);
  EXPECT_TRUE(warnings[0].starts_with("the cgroup")) << warnings[0];
  EXPECT_TRUE(warnings[1].starts_with("the memlock")) << warnings[1];
}

TEST(DeviceWarnings, GpusAreFoundOnTheBus) {
  const TemporaryFolder bus;
  const auto add = [&bus](const std::string& address, const std::string& vendor,
                          const std::string& type, const std::string& node) {
    std::filesystem::create_directory(bus.path() / address);
    bus.write(address + "/vendor", vendor + "\n");
    bus.write(address + "/class", type + "\n");
    if (!node.empty()) bus.write(address + "/numa_node", node + "\n");
  };
  add("0000:81:00.0", "0x10de", "0x030200", "1");  // a GPU without a display
  add("0000:17:00.0", "0x10de", "0x030000", "-1");
  add("0000:17:00.1", "0x10de", "0x040300", "0");  // its audio function
  add("0000:01:00.0", "0x1a03", "0x030000", "0");  // a display of another vendor
  const auto gpus = read_gpu_places(bus.path());
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].address, "0000:17:00.0");
  EXPECT_FALSE(gpus[0].node);
  EXPECT_EQ(gpus[1].address, "0000:81:00.0");
  EXPECT_EQ(gpus[1].node, 1u);
  EXPECT_TRUE(read_gpu_places(bus.path() / "none").empty());
}

}  // namespace
}  // namespace ebb

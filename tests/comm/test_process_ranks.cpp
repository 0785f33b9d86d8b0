#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <random>

#include "comm/machine_ranks.h"
#include "comm/process_ranks.h"
#include "system/clock.h"
#include "tests/comm/child_ranks.h"
#include "tests/comm/rank_cases.h"
#include "tests/error_of.h"

namespace ebb {
namespace {

using test::ChildRanks;
using test::error_of;

/// The memory of a run, and children that are its ranks.
class ChildrenWithMemory : public ChildRanks {
 public:
  explicit ChildrenWithMemory(uint32_t size) : ChildRanks(size), memory(create_rank_memory(size)) {}
  ~ChildrenWithMemory() { close(memory); }

  /// Each child joins and calls `body`.
  void join(const ProcessRanksOptions& options, const std::function<void(Ranks&)>& body) {
    start([=, this](uint32_t rank) { body(*join_ranks(memory, rank, options)); });
  }

  const int memory;
};

class ProcessRanksOfSize : public testing::TestWithParam<uint32_t> {
 protected:
  void expect_success(const std::function<void(Ranks&)>& body) {
    ChildrenWithMemory children(GetParam());
    children.join({}, body);
    for (uint32_t r = 0; r < GetParam(); ++r) EXPECT_EQ(children.end_of(r), "");
  }
};
INSTANTIATE_TEST_SUITE_P(, ProcessRanksOfSize, testing::Values(1, 2, 4));

TEST_P(ProcessRanksOfSize, Exchange) { expect_success(test::check_exchange); }
TEST_P(ProcessRanksOfSize, Share) { expect_success(test::check_share); }
TEST_P(ProcessRanksOfSize, SignalsInARing) { expect_success(test::check_ring); }

// Works until another rank is lost. Uses all that waits.
void work_for_ever(Ranks& ranks) {
  const uint32_t before = (ranks.rank() + ranks.size() - 1) % ranks.size();
  std::vector<std::byte> mine(20000), all(mine.size() * ranks.size());
  for (uint32_t step = 1;; ++step) {
    ranks.exchange(mine, all);
    if (step % 16 == 0) ranks.share(3 << 20);
    ranks.raise(0, step);
    ranks.wait(before, 0, step);
  }
}

TEST(ProcessRanks, AKilledRankEndsTheWaitsOfAllOthers) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    std::mt19937 random(seed);
    const uint32_t killed = random() % 4;
    ChildrenWithMemory children(4);
    children.join({}, [&](Ranks& ranks) {
      ranks.create_signals(1);
      children.set_ready(ranks.rank());
      work_for_ever(ranks);
    });
    children.wait_until_ready();
    sleep_until(steady_now_s() + random() % 100 * 1e-3);
    children.send(killed, SIGKILL);
    const double start_s = steady_now_s();
    for (uint32_t r = 0; r < 4; ++r) {
      if (r == killed) continue;
      EXPECT_SAYS(children.end_of(r), fmt::format("rank {} is gone: its process ", killed));
    }
    EXPECT_LT(steady_now_s() - start_s, 5) << "seed " << seed;
    EXPECT_EQ(children.end_of(killed), "signal 9");
  }
}

TEST(ProcessRanks, AStoppedRankIsFound) {
  ChildrenWithMemory children(3);
  children.join({.timeout_s = 60, .silence_s = 1}, [&](Ranks& ranks) {
    ranks.create_signals(1);
    children.set_ready(ranks.rank());
    work_for_ever(ranks);
  });
  children.wait_until_ready();
  children.send(1, SIGSTOP);
  const double start_s = steady_now_s();
  for (const uint32_t r : {0, 2}) {
    const std::string end = children.end_of(r);
    EXPECT_SAYS(end, "rank 1 does not answer: its process ");
    EXPECT_SAYS(end, " has done nothing for 1 s");
  }
  EXPECT_LT(steady_now_s() - start_s, 10);
  // The stopped rank continues and learns that the run has ended.
  children.send(1, SIGCONT);
  EXPECT_SAYS(children.end_of(1), "rank 1 does not answer");
}

// Rank 1 computes for longer than silence_s.
TEST(ProcessRanks, ABusyRankIsNotLost) {
  ChildrenWithMemory children(2);
  children.join({.timeout_s = 60, .silence_s = 1}, [](Ranks& ranks) {
    ranks.create_signals(1);
    if (ranks.rank() == 0) return ranks.wait(1, 0, 1);
    sleep_until(steady_now_s() + 1.5);
    ranks.raise(0, 1);
  });
  for (uint32_t r = 0; r < 2; ++r) EXPECT_EQ(children.end_of(r), "");
}

TEST(ProcessRanks, ARunThatIsStoppedAsAWholeContinues) {
  ChildrenWithMemory children(2);
  children.join({.timeout_s = 1.5, .silence_s = 1.5}, [&](Ranks& ranks) {
    ranks.create_signals(1);
    children.set_ready(ranks.rank());
    if (ranks.rank() == 0) return ranks.wait(1, 0, 1);
    const double start_s = steady_now_s();
    while (steady_now_s() < start_s + 1.5) sleep_until(steady_now_s() + 0.01);
    ranks.raise(0, 1);
  });
  children.wait_until_ready();
  for (const int signal : {SIGSTOP, SIGCONT}) {
    for (uint32_t r = 0; r < 2; ++r) children.send(r, signal);
    if (signal == SIGSTOP) sleep_until(steady_now_s() + 2.5);
  }
  for (uint32_t r = 0; r < 2; ++r) EXPECT_EQ(children.end_of(r), "");
}

TEST(ProcessRanks, AProcessThatEndsWithoutLeavingIsLost) {
  ChildrenWithMemory children(2);
  children.join({}, [](Ranks& ranks) {
    ranks.create_signals(1);
    if (ranks.rank() == 1) _exit(3);
    ranks.wait(1, 0, 1);
  });
  EXPECT_SAYS(children.end_of(0), "rank 1 is gone");
  EXPECT_EQ(children.end_of(1), "exit 3");
}

// Rank 1 leaves after its last signal. The others go on for 0.5 s, and may still wait for what
// rank 1 has raised.
TEST(ProcessRanks, ARankMayLeaveBeforeTheOthers) {
  ChildrenWithMemory children(3);
  children.join({}, [](Ranks& ranks) {
    ranks.create_signals(2);
    ranks.raise(1, 9);
    if (ranks.rank() == 1) return;
    for (uint32_t step = 1; step <= 50; ++step) {
      sleep_until(steady_now_s() + 0.01);
      ranks.raise(0, step);
      ranks.wait(2 - ranks.rank(), 0, step);
    }
    ranks.wait(1, 1, 9);
  });
  for (uint32_t r = 0; r < 3; ++r) EXPECT_EQ(children.end_of(r), "");
}

TEST(ProcessRanks, ARankThatHasLeftEndsWaitsForIt) {
  ChildrenWithMemory children(3);
  children.join({}, [](Ranks& ranks) {
    ranks.create_signals(1);
    if (ranks.rank() == 1) throw Error("without fail()");
    if (ranks.rank() == 0) ranks.wait(1, 0, 2);
    if (ranks.rank() == 2) ranks.wait(0, 0, 1);
  });
  for (const uint32_t r : {0, 2}) {
    EXPECT_EQ(children.end_of(r),
              "rank 0 waits for rank 1, which has left the run and has not raised signal 0 to 2 "
              "(its value is 0)");
  }
}

TEST(ProcessRanks, AFailureEndsAllWaits) {
  ChildrenWithMemory children(3);
  children.join({}, [](Ranks& ranks) {
    ranks.create_signals(1);
    if (ranks.rank() == 2) ranks.fail("out of luck");
    ranks.wait(0, 0, 1);
  });
  for (uint32_t r = 0; r < 3; ++r) EXPECT_EQ(children.end_of(r), "rank 2 failed: out of luck");
}

TEST(ProcessRanks, TheParentMayEndTheRun) {
  ChildrenWithMemory children(2);
  children.start([&](uint32_t rank) {
    if (rank == 1) _exit(4);  // before it becomes a rank
    join_ranks(children.memory, rank)->create_signals(1);
  });
  EXPECT_EQ(children.end_of(1), "exit 4");
  fail_ranks(children.memory, "rank 1 ended with exit code 4");
  fail_ranks(children.memory, "something else");
  EXPECT_EQ(children.end_of(0), "rank 1 ended with exit code 4");
}

TEST(ProcessRanks, JoiningIsChecked) {
  ChildrenWithMemory children(2);
  EXPECT_SAYS(error_of<ConfigError>([&] { join_ranks(children.memory, 2); }), "no rank 2 of 2");
  const std::unique_ptr<Ranks> joined = join_ranks(children.memory, 1);
  EXPECT_SAYS(error_of<ConfigError>([&] { join_ranks(children.memory, 1); }),
              fmt::format("process {} is rank 1 already", getpid()));
  EXPECT_SAYS(error_of<ConfigError>([] { join_ranks(-1, 0); }), "not the memory of ranks");
  const int other = memfd_create("other", 0);
  EXPECT_EQ(ftruncate(other, 4 << 20), 0);
  EXPECT_SAYS(error_of<ConfigError>([&] { join_ranks(other, 0); }), "not the memory of ranks");
  close(other);
}

// The environment of a child. The variables of launchers are removed first.
void set_environment(const std::vector<std::pair<std::string, std::string>>& variables) {
  for (const char* name : {"EBB_RANK", "EBB_RANK_MEMORY", "RANK", "WORLD_SIZE", "SLURM_PROCID",
                           "OMPI_COMM_WORLD_RANK"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
}

// The program that StartedProgramsAreRanks executes.
TEST(ProcessRanks, DISABLED_StartedProgram) {
  const std::unique_ptr<Ranks> ranks = join_ranks_of_environment();
  ASSERT_NE(ranks, nullptr);
  EXPECT_EQ(std::getenv("EBB_RANK"), nullptr);
  EXPECT_EQ(std::getenv("EBB_RANK_MEMORY"), nullptr);
  test::check_exchange(*ranks);
}

TEST(ProcessRanks, StartedProgramsAreRanks) {
  ChildrenWithMemory children(2);
  children.start([&](uint32_t rank) {
    set_environment(rank_variables(children.memory, rank));
    close(STDOUT_FILENO);
    open("/dev/null", O_WRONLY);
    execl("/proc/self/exe", "started", "--gtest_also_run_disabled_tests",
          "--gtest_filter=ProcessRanks.DISABLED_StartedProgram", nullptr);
  });
  for (uint32_t r = 0; r < 2; ++r) EXPECT_EQ(children.end_of(r), "");
}

std::string run_name() { return fmt::format("test-{}", getpid()); }

TEST(MeetRanks, RanksMeetByName) {
  const std::string name = run_name();
  ChildRanks children(3);
  children.start([&](uint32_t rank) {
    if (rank == 0) sleep_until(steady_now_s() + 0.2);  // the others wait for rank 0
    test::check_share(*meet_ranks(name, rank, 3));
  });
  for (uint32_t r = 0; r < 3; ++r) EXPECT_EQ(children.end_of(r), "");
}

TEST(MeetRanks, AMissingRankIsNamed) {
  const std::string name = run_name();
  ChildRanks children(2);
  children.start([&](uint32_t rank) { meet_ranks(name, rank, 3, {.timeout_s = 2}); });
  EXPECT_EQ(children.end_of(0),
            fmt::format("rank 2 has not come to the run '{}' on this machine for 2 s", name));
  EXPECT_EQ(children.end_of(1), "");
  EXPECT_SAYS(error_of<RankLost>([&] { meet_ranks(name, 1, 3, {.timeout_s = 0.1}); }),
              fmt::format("rank 0 has not begun the run '{}'", name));
}

TEST(MeetRanks, RanksAgreeAboutTheRun) {
  const std::string name = run_name();
  EXPECT_SAYS(error_of<ConfigError>([&] { meet_ranks(name, 3, 3); }), "no rank 3 of 3");
  EXPECT_SAYS(error_of<ConfigError>([&] { meet_ranks(std::string(100, 'x'), 0, 2); }), "longer");
  ChildRanks children(2);
  children.start([&](uint32_t rank) { meet_ranks(name, rank, rank == 0 ? 4 : 2); });
  for (uint32_t r = 0; r < 2; ++r) {
    EXPECT_EQ(children.end_of(r),
              fmt::format("rank 1 of the run '{}' has 2 ranks, rank 0 has 4", name));
  }
}

TEST(MeetRanks, ANameBelongsToOneRun) {
  const std::string name = run_name();
  ChildRanks children(2);
  children.start([&](uint32_t) { meet_ranks(name, 0, 2, {.timeout_s = 2}); });
  std::string ends[] = {children.end_of(0), children.end_of(1)};
  if (ends[0] > ends[1]) std::swap(ends[0], ends[1]);
  EXPECT_SAYS(ends[0], "another run has this name");
  EXPECT_SAYS(ends[1], "rank 1 has not come");
}

// Runs two children in the environment of a launcher.
std::vector<std::string> ends_in_environment(
    const std::function<std::vector<std::pair<std::string, std::string>>(std::string)>& variables) {
  ChildRanks children(2);
  children.start([&](uint32_t rank) {
    set_environment(variables(std::to_string(rank)));
    const std::unique_ptr<Ranks> ranks = join_ranks_of_environment({.timeout_s = 10});
    if (ranks == nullptr) throw Error("no ranks");
    if (ranks->rank() != rank || ranks->size() != 2) throw Error("another rank");
    test::check_ring(*ranks);
  });
  return {children.end_of(0), children.end_of(1)};
}

TEST(RankEnvironment, Torchrun) {
  const std::string port = std::to_string(getpid());
  for (const std::string& end : ends_in_environment([&](const std::string& rank) {
         return std::vector<std::pair<std::string, std::string>>{{"RANK", rank},
                                                                 {"WORLD_SIZE", "2"},
                                                                 {"LOCAL_WORLD_SIZE", "2"},
                                                                 {"MASTER_ADDR", "localhost"},
                                                                 {"MASTER_PORT", port}};
       })) {
    EXPECT_EQ(end, "");
  }
}

TEST(RankEnvironment, Mpirun) {
  const std::string job = std::to_string(getpid());
  for (const std::string& end : ends_in_environment([&](const std::string& rank) {
         return std::vector<std::pair<std::string, std::string>>{
             {"OMPI_COMM_WORLD_RANK", rank},
             {"OMPI_COMM_WORLD_SIZE", "2"},
             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
             {"PMIX_NAMESPACE", job}};
       })) {
    EXPECT_EQ(end, "");
  }
}

TEST(RankEnvironment, Srun) {
  const std::string job = std::to_string(getpid());
  for (const std::string& end : ends_in_environment([&](const std::string& rank) {
         return std::vector<std::pair<std::string, std::string>>{{"SLURM_PROCID", rank},
                                                                 {"SLURM_STEP_NUM_TASKS", "2"},
                                                                 {"SLURM_STEP_NUM_NODES", "1"},
                                                                 {"SLURM_JOB_ID", job},
                                                                 {"SLURM_STEP_ID", "0"}};
       })) {
    EXPECT_EQ(end, "");
  }
}

TEST(RankEnvironment, ErrorsNameTheVariable) {
  const auto end_of = [](const std::vector<std::pair<std::string, std::string>>& variables) {
    return ends_in_environment([&](const std::string&) { return variables; })[0];
  };
  EXPECT_EQ(end_of({}), "no ranks");
  EXPECT_EQ(end_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "no ranks");
  EXPECT_SAYS(end_of({{"RANK", "0"}, {"WORLD_SIZE", "2x"}}), "WORLD_SIZE is '2x', not a number");
  EXPECT_SAYS(end_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), "RANK is set, but not MASTER_ADDR");
  EXPECT_SAYS(end_of({{"EBB_RANK_MEMORY", "5"}}), "EBB_RANK_MEMORY is set, but not EBB_RANK");
  EXPECT_SAYS(
      end_of({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}}),
      "torchrun started 4 ranks on several machines (LOCAL_WORLD_SIZE is 2), which need MPI: "
      "start them with mpirun or srun");
}

// libebb_mpi.so is neither beside this program nor in a folder of the loader.
TEST(RankEnvironment, SeveralMachinesNeedMpi) {
  const auto end_of = [](RankTransport transport,
                         const std::vector<std::pair<std::string, std::string>>& variables) {
    ChildRanks children(1);
    children.start([&](uint32_t) {
      set_environment(variables);
      unsetenv("LD_LIBRARY_PATH");
      join_ranks_of_environment({.transport = transport});
    });
    return children.end_of(0);
  };
  const std::vector<std::pair<std::string, std::string>> two_machines = {
      {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_NUM_NODES", "2"}};
  for (const std::string& end :
       {end_of(RankTransport::Auto, two_machines),
        end_of(RankTransport::Mpi, {{"OMPI_COMM_WORLD_RANK", "0"},
                                    {"OMPI_COMM_WORLD_SIZE", "2"},
                                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})}) {
    EXPECT_SAYS(end, "need libebb_mpi.so, which cannot be loaded");
    EXPECT_SAYS(end, "libopenmpi-dev");
  }
  EXPECT_SAYS(end_of(RankTransport::Shared, two_machines),
              "srun started 4 ranks on several machines (SLURM_STEP_NUM_NODES is 2), which have no "
              "shared memory: leave out `rank_transport`");
  EXPECT_SAYS(end_of(RankTransport::Mpi, {}), "start the ranks with mpirun or srun");
  EXPECT_SAYS(
      end_of(RankTransport::Mpi, {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}}),
      "torchrun started the ranks, which need MPI");
}

TEST(RanksPerMachine, RanksAreNumberedMachineByMachine) {
  using Machines = std::vector<uint32_t>;
  EXPECT_EQ(checked_ranks_per_machine(Machines{0}), 1u);
  EXPECT_EQ(checked_ranks_per_machine(Machines{0, 1, 2}), 1u);
  EXPECT_EQ(checked_ranks_per_machine(Machines{0, 0, 2, 2, 4, 4}), 2u);
  for (const Machines& wrong :
       {Machines{0, 1, 0, 1}, Machines{0, 0, 2}, Machines{0, 1, 1}, Machines{0, 0, 2, 3}}) {
    EXPECT_SAYS(error_of<ConfigError>([&] { checked_ranks_per_machine(wrong); }), "'map-by slot'");
  }
}

}  // namespace
}  // namespace ebb

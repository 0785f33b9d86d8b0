// Ranks that are processes of one machine, or of several (join_ranks_of_environment()).
//
// The processes meet in one file in memory (memfd_create), the memory of the run. It begins with
// the control block, and grows when ranks share memory; each process maps what all of them share.
// One file for all ranks has three advantages over one file for each: a process gets everything
// with one file descriptor, nobody opens files of another process, which containers may forbid, and
// no name is left behind when processes are killed. Unlike /dev/shm, which is 64 MiB in many
// containers, such a file is limited only by the memory of the machine or container.
//
//   const int memory = create_rank_memory(4);       // the process that starts the ranks
//   // fork(); in the child: setenv(rank_variables(memory, 2)), exec()
//
//   std::unique_ptr<Ranks> ranks = join_ranks_of_environment();     // in each rank
//
// A rank that has done its work destroys its Ranks. A process that ends before that is found by the
// others within a second, a stopped process after `silence_s` (comm/rank_watch.h). A process that
// ends before it has joined is found only by the process that started it, which calls fail_ranks().
//
// Thread-safety: any thread may call these functions; Ranks says what its methods allow.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/ranks.h"

namespace ebb {

/// How ranks reach each other. Auto: through shared memory, and through MPI if a launcher started
/// them on several machines. Mpi: through MPI, as if each rank were on another machine.
enum class RankTransport : uint8_t { Auto, Shared, Mpi };

struct ProcessRanksOptions {
  double timeout_s = 60;  ///< the longest wait for another rank
  /// After so many seconds a stopped process is taken for lost. Less than timeout_s: otherwise a
  /// wait may end first and name the rank that it waits for, which may itself wait for the stopped
  /// one.
  double silence_s = 20;
  RankTransport transport = RankTransport::Auto;
  /// For tests of RankTransport::Mpi: so many ranks are treated as one machine.
  uint32_t ranks_per_machine = 1;
  /// With RankTransport::Mpi: copies between ranks take as long as with a network of this bandwidth
  /// of each rank, in each direction; 0: as fast as MPI.
  double network_bytes_per_s = 0;
};

/// Makes the memory of a run of `size` ranks. Returns a file descriptor, which programs inherit
/// that this process starts. The caller closes it. Throws Error if the system refuses.
/// REQUIRES: size >= 1.
int create_rank_memory(uint32_t size);

/// Makes this process the rank `rank`. Duplicates the file descriptor. Throws ConfigError if the
/// file is not the memory of a run with this rank, or if a process is this rank already. Does not
/// wait for the other ranks.
std::unique_ptr<Ranks> join_ranks(int memory, uint32_t rank,
                                  const ProcessRanksOptions& options = {});

/// For a process that starts ranks: ends the run if no rank has failed yet, for example because a
/// child ended before it became a rank. Waits of all ranks throw RankLost with this message.
void fail_ranks(int memory, std::string_view message);

/// The environment variables of a program that shall become a rank: names and values.
std::vector<std::pair<std::string, std::string>> rank_variables(int memory, uint32_t rank);

/// Makes this process the rank that the environment names: the variables of rank_variables(), or
/// those of OpenMPI's mpirun (OMPI_COMM_WORLD_RANK, _SIZE and _LOCAL_SIZE, PMIX_NAMESPACE), or
/// those of torchrun (RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT), or those of
/// srun (SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_NUM_NODES, SLURM_JOB_ID, SLURM_STEP_ID).
/// Null if there are none, or if the launcher started one process and `transport` is not Mpi.
/// Removes the variables of rank_variables(), so that programs that this process starts do not take
/// them for theirs. mpirun and srun may start ranks on several machines, which need libebb_mpi.so
/// and are numbered machine by machine. Throws ConfigError if a value is wrong or `transport` does
/// not fit the run, errors of meet_ranks(), and Error if MPI does not start.
std::unique_ptr<Ranks> join_ranks_of_environment(const ProcessRanksOptions& options = {});

/// Makes this process a rank of the run `run`, for processes that another program started. Rank 0
/// gives the memory of the run to the others through a Unix socket, whose address contains the name
/// and the user. (A TCP port would not do: torchrun itself uses MASTER_PORT.) Collective. Throws
/// RankLost if a rank is missing after timeout_s, and ConfigError if another run has the name, if
/// the name is too long, if the sizes differ or there is no such rank.
std::unique_ptr<Ranks> meet_ranks(std::string_view run, uint32_t rank, uint32_t size,
                                  const ProcessRanksOptions& options = {});

}  // namespace ebb

// Ranks on several machines: those of one machine meet in shared memory, and a thread of each rank
// carries messages to other machines through MPI (comm/machine_link.h).
//
// A rank that leaves waits in its destructor until the ranks of other machines leave, because they
// may still read its memory. A rank of another machine that ends or is stopped is found after
// `silence_s`; where mpirun ends the others first, the exit code is mpirun's. Failures that happen
// at the same time on several machines may be reported differently on each of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "comm/process_ranks.h"
#include "comm/ranks.h"

namespace ebb {

/// What a launcher says about this process.
struct LaunchedRank {
  std::string_view launcher;
  uint32_t rank;
  uint32_t size;
};

/// The number of ranks on each machine. `machines`: of each rank, the lowest rank of its machine.
/// Throws ConfigError unless ranks are numbered machine by machine with the same number on each.
uint32_t checked_ranks_per_machine(std::span<const uint32_t> machines);

/// Makes this process a rank of the run that the launcher started. Called once in a process.
/// `ranks_per_machine`: 0: as MPI says; for tests: so many ranks are treated as one machine.
/// Collective. Throws ConfigError if libebb_mpi.so is missing, if MPI and the launcher disagree,
/// and unless the ranks are numbered machine by machine with the same number on each.
std::unique_ptr<Ranks> join_machines(const LaunchedRank& launched, uint32_t ranks_per_machine,
                                     const ProcessRanksOptions& options);

}  // namespace ebb

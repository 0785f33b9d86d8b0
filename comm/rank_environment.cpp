// Which rank the environment of this process names.

#include <fcntl.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <optional>

#include "comm/machine_ranks.h"
#include "comm/process_ranks.h"
#include "device/errors.h"

namespace ebb {
namespace {

constexpr const char* kMemoryVariable = "EBB_RANK_MEMORY";
constexpr const char* kRankVariable = "EBB_RANK";

/// The variables with which a launcher tells a process its rank.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_size;  // the number of ranks or of machines; may be missing
  bool local_size_is_machines;
  bool has_mpi;
  const char* run[2];  // together they name the run
};
constexpr Launcher kLaunchers[] = {
    {"mpirun",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     false,
     true,
     {"PMIX_NAMESPACE", "OMPI_COMM_WORLD_SIZE"}},
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_WORLD_SIZE",
     false,
     false,
     {"MASTER_ADDR", "MASTER_PORT"}},
    {"srun",
     "SLURM_PROCID",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_STEP_NUM_NODES",
     true,
     true,
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

std::optional<uint32_t> number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const std::string_view digits = text;
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    throw ConfigError(
        fmt::format("the environment variable {} is '{}', not a number", variable, digits));
  }
  return value;
}

std::string text_in(const Launcher& launcher, const char* variable) {
  const char* const text = std::getenv(variable);
  if (text != nullptr) return text;
  throw ConfigError(fmt::format("{} is set, but not {}, which {} sets, too", launcher.rank,
                                variable, launcher.name));
}

/// Throws ConfigError if the transport does not fit.
bool uses_mpi(const Launcher& launcher, uint32_t size, RankTransport transport) {
  const auto local_size = number_in(launcher.local_size);
  const bool is_one_machine =
      !local_size || *local_size == (launcher.local_size_is_machines ? 1 : size);
  const bool wanted = transport == RankTransport::Mpi;
  if (is_one_machine && !(wanted && !launcher.has_mpi)) return wanted;
  const std::string started =
      is_one_machine ? fmt::format("{} started the ranks", launcher.name)
                     : fmt::format("{} started {} ranks on several machines ({} is {})",
                                   launcher.name, size, launcher.local_size, *local_size);
  if (!launcher.has_mpi) {
    throw ConfigError(started + ", which need MPI: start them with mpirun or srun");
  }
  if (transport == RankTransport::Shared) {
    throw ConfigError(started + ", which have no shared memory: leave out `rank_transport`");
  }
  return true;
}

std::unique_ptr<Ranks> join_parent(uint32_t memory, const ProcessRanksOptions& options) {
  const std::optional<uint32_t> rank = number_in(kRankVariable);
  if (!rank)
    throw ConfigError(fmt::format("{} is set, but not {}", kMemoryVariable, kRankVariable));
  const int inherited = static_cast<int>(memory);
  std::unique_ptr<Ranks> ranks = join_ranks(inherited, *rank, options);
  fcntl(inherited, F_SETFD, FD_CLOEXEC);
  unsetenv(kMemoryVariable);
  unsetenv(kRankVariable);
  return ranks;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> rank_variables(int memory, uint32_t rank) {
  return {{kMemoryVariable, std::to_string(memory)}, {kRankVariable, std::to_string(rank)}};
}

std::unique_ptr<Ranks> join_ranks_of_environment(const ProcessRanksOptions& options) {
  if (const auto memory = number_in(kMemoryVariable)) return join_parent(*memory, options);
  for (const Launcher& launcher : kLaunchers) {
    const auto rank = number_in(launcher.rank), size = number_in(launcher.size);
    if (!rank || !size) continue;
    if (*size <= 1 && !(launcher.has_mpi && options.transport == RankTransport::Mpi)) continue;
    if (uses_mpi(launcher, *size, options.transport)) {
      const bool as_mpi_says = options.transport == RankTransport::Auto;
      return join_machines({launcher.name, *rank, *size},
                           as_mpi_says ? 0 : options.ranks_per_machine, options);
    }
    std::string run = text_in(launcher, launcher.run[0]);
    run += ':' + text_in(launcher, launcher.run[1]);
    return meet_ranks(run, *rank, *size, options);
  }
  if (options.transport != RankTransport::Mpi) return nullptr;
  throw ConfigError("`rank_transport` mpi: start the ranks with mpirun or srun");
}

}  // namespace ebb

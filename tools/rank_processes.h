// The ranks of a command: processes that train one model together.
//
// --ranks N starts N - 1 further processes with the same command line on this machine; this process
// is rank 0.
// Under mpirun, torchrun and srun all processes are started already, and the environment says their
// ranks. Rank 0 writes all output; that of the others is discarded.
//
// Thread-safety: one thread. Errors: ConfigError for a wrong environment; those of comm/ranks.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "chunk/rank_place.h"
#include "comm/process_ranks.h"
#include "comm/ranks.h"

namespace ebb {

class RankProcesses {
 public:
  /// `num_ranks`: --ranks, or 0 if it is not given. The number of ranks is that of the environment,
  /// or else `num_ranks`, or else `usual`; if all are 0, it is 1. ConfigError if --ranks is given
  /// and the environment has another number. `command`: "train" or "profile", and its arguments.
  /// REQUIRES: this process has started no thread.
  RankProcesses(uint32_t num_ranks, uint32_t usual, const std::vector<std::string>& command,
                const ProcessRanksOptions& options);
  /// Rank 0 waits until the processes that it started have ended.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  /// Null: there is one rank.
  Ranks* ranks() const { return ranks_.get(); }
  RankPlace place() const;
  bool is_first() const { return place().rank == 0; }
  /// Says to the other ranks that this one ends because of an error.
  void fail(const char* error) noexcept;

 private:
  class Started;                      // the processes of rank 1, 2, ... that this process started
  std::unique_ptr<Started> started_;  // null: none
  std::unique_ptr<Ranks> ranks_;      // destroyed first: the processes end when all have left
};

// Below, `ranks` is null if there is one rank.

/// Runs `work` on rank 0, or on the only rank, while the other ranks wait, however long it takes.
/// `work` must not use the ranks. If it throws, the others wait until rank 0 calls fail() or the
/// time limit is over. Collective.
void on_first_rank(Ranks* ranks, const std::function<void()>& work);

/// The texts of all ranks. Collective.
std::vector<std::string> texts_of_ranks(Ranks* ranks, const std::string& mine);

/// The greatest number that a rank gives. Collective.
template <class T>
T greatest_of_ranks(Ranks* ranks, T mine) {
  return ranks == nullptr ? mine : std::ranges::max(all_of_ranks(*ranks, mine));
}

}  // namespace ebb

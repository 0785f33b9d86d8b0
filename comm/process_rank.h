// A rank that is a process: the ranks of its machine meet in the memory of a run. The base of ranks
// that also reach other machines.
//
// Thread-safety and errors: as Ranks.
#pragma once

#include <memory>

#include "comm/local_ranks.h"
#include "comm/process_ranks.h"
#include "comm/rank_memory.h"
#include "comm/rank_watch.h"

namespace ebb {

class ProcessRank : public LocalRanks {
 public:
  /// Throws ConfigError if there is no such rank, or if a process is this rank already.
  ProcessRank(std::shared_ptr<RankMemory> memory, uint32_t rank,
              const ProcessRanksOptions& options);

 protected:
  std::vector<std::byte*> share_with_all(size_t bytes) override;
  ControlBlock& block() const { return memory_->block(); }

 private:
  const std::shared_ptr<RankMemory> memory_;
  RankWatch watch_;
};

}  // namespace ebb

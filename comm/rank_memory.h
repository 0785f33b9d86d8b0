// The memory of a run on one machine: one file in memory that its processes map (see
// comm/process_ranks.h). It begins with the control block.
//
// Thread-safety: one thread at a time calls add().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/control_block.h"
#include "system/unique_fd.h"

namespace ebb {

class RankMemory {
 public:
  /// Duplicates the file descriptor. Throws ConfigError if the file is not the memory of a run.
  explicit RankMemory(int memory);
  ~RankMemory();
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  ControlBlock& block() const;

  /// Adds zeroed memory of these sizes, and returns their addresses. All processes of the machine
  /// call it with the same sizes, between two collective calls. Throws Error if the system refuses.
  std::vector<std::byte*> add(std::span<const size_t> sizes);

 private:
  class Mapping;

  const UniqueFd memory_;
  std::unique_ptr<Mapping> control_;
  size_t end_ = 0;  // of what has been added so far
  std::vector<std::unique_ptr<Mapping>> added_;
};

/// As create_rank_memory() (comm/process_ranks.h), for one of the machines of a run.
int create_rank_memory(uint32_t size, uint32_t ranks_per_machine);

}  // namespace ebb

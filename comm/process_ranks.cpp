#include "comm/process_ranks.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/process_rank.h"
#include "device/errors.h"

namespace ebb {
namespace {

ControlBlock& checked_block(const RankMemory& memory, uint32_t rank) {
  ControlBlock& block = memory.block();
  if (rank < block.size) return block;
  throw ConfigError(fmt::format("there is no rank {} of {}", rank, block.size));
}

}  // namespace

ProcessRank::ProcessRank(std::shared_ptr<RankMemory> memory, uint32_t rank,
                         const ProcessRanksOptions& options)
    : LocalRanks(checked_block(*memory, rank), rank, options.timeout_s),
      memory_(std::move(memory)),
      watch_(memory_->block(), rank, options.silence_s) {}

std::vector<std::byte*> ProcessRank::share_with_all(size_t bytes) {
  const std::vector<size_t> bytes_of = collect(Operation::Share, bytes);
  const uint32_t first = rank() / ranks_per_machine() * ranks_per_machine();
  const std::vector<std::byte*> near =
      memory_->add(std::span(bytes_of).subspan(first, ranks_per_machine()));
  std::vector<std::byte*> memory(size(), nullptr);
  std::copy(near.begin(), near.end(), memory.begin() + first);
  return memory;
}

int create_rank_memory(uint32_t size) { return create_rank_memory(size, size); }

std::unique_ptr<Ranks> join_ranks(int memory, uint32_t rank, const ProcessRanksOptions& options) {
  return std::make_unique<ProcessRank>(std::make_shared<RankMemory>(memory), rank, options);
}

void fail_ranks(int memory, std::string_view message) {
  const RankMemory mapped(memory);
  announce_failure(mapped.block(), mapped.block().size, message);
}

}  // namespace ebb

#include "comm/thread_ranks.h"

#include <fmt/format.h>

#include "comm/local_ranks.h"
#include "device/errors.h"
#include "system/pages.h"

namespace ebb {

/// Zeroed memory of whole pages, at least one.
struct ThreadRanks::Memory {
  explicit Memory(size_t wanted)
      : bytes((wanted / kPageBytes + 1) * kPageBytes), data(reserve_addresses(bytes)) {
    try {
      commit_memory(data, bytes, "memory that ranks share");
    } catch (...) {
      release_addresses(data, bytes);
      throw;
    }
  }
  ~Memory() { release_addresses(data, bytes); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  const size_t bytes;
  std::byte* const data;
};

class ThreadRanks::Rank final : public LocalRanks {
 public:
  using LocalRanks::LocalRanks;

 private:
  std::vector<std::byte*> share_with_all(size_t bytes) override {
    shared_.push_back(std::make_unique<Memory>(bytes));
    return collect(Operation::Share, shared_.back()->data);
  }

  std::vector<std::unique_ptr<Memory>> shared_;
};

ThreadRanks::ThreadRanks(uint32_t size, const ThreadRanksOptions& options) {
  EBB_CHECK(size >= 1, "a run has at least one rank");
  const uint32_t per_machine = options.ranks_per_machine > 0 ? options.ranks_per_machine : size;
  EBB_CHECK(size % per_machine == 0, "each machine has the same number of ranks");
  block_ = std::make_unique<Memory>(control_block_bytes(size));
  auto& block = *reinterpret_cast<ControlBlock*>(block_->data);
  block.size = size;
  block.ranks_per_machine = per_machine;
  for (uint32_t r = 0; r < size; ++r) {
    ranks_.push_back(std::make_unique<Rank>(block, r, options.timeout_s));
  }
}

ThreadRanks::~ThreadRanks() = default;

Ranks& ThreadRanks::rank(uint32_t rank) {
  EBB_CHECK(rank < size(), fmt::format("rank {} of {}", rank, size()));
  return *ranks_[rank];
}

}  // namespace ebb

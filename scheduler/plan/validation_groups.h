// Checks what a plan does with stored gradient sums of groups, and its messages to and from
// other ranks: each sum is stored once and sent, a slot is used again only when its sums are added,
// groups are added when all sums are there, and weights are loaded after their update. Part of
// validate(); one thread.
#pragma once

#include <vector>

#include "chunk/layout.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/validation_gradients.h"
#include "scheduler/plan/validation_memory.h"
#include "scheduler/plan/validation_running_sums.h"

namespace ebb::validation {

class Groups {
 public:
  Groups(const Plan& plan, const Layout& layout, const PlanOptions& options,
         const std::vector<bool>& trained, Memory& memory, Gradients& gradients, Report& report);

  /// Counts a contribution of the trace to this sum chunk.
  void expect_contribution(uint32_t sum_chunk) { ++sums_[sum_chunk].num_left; }
  void contribute(uint32_t sum_chunk) {
    if (sums_[sum_chunk].num_left > 0) --sums_[sum_chunk].num_left;
  }
  void store(uint32_t sum_chunk, BufferIndex slot);
  void add(const Op& op);
  void fetch_sum(const Op& op);
  void round_total(const Op& op);
  void send(const Op& op);
  void receive(const Op& op);
  void update(const Op& op);
  /// This rank fetches the weights for all ranks of its machine.
  void fetch_copy(const Op& op);
  void norm();
  void check_end();

 private:
  struct Sum {
    uint32_t num_left = 0;  // contributions
    OpIndex store = kNone;
  };
  struct OfChunk {               // a parameter chunk
    std::vector<uint32_t> sums;  // of this rank, in all its groups
    OpIndex added = kNone;       // the addition of its groups, or the message about it
    OpIndex sums_received = kNone, update = kNone;
    uint32_t num_updates_sent = 0, num_updates = 0, num_added_sent = 0;
    uint32_t num_sums_sent = 0;
    OpIndex fetched = kNone;  // for all ranks of this machine
    uint32_t num_copied_sent = 0;
  };
  void require_received(ChunkIndex chunk, OpIndex op, const char* what);
  void require_stored(ChunkIndex chunk);
  bool fetches(ChunkIndex chunk) const {
    return plan_.chunks[chunk].is_copied && options_.division.place.fetches(chunk);
  }
  void send_sums(ChunkIndex chunk);
  void check_sender(const Op& op);
  bool has_ranks() const { return options_.division.place.num_ranks > 1; }
  /// Does this rank add the groups of the chunk, or those of its machine?
  bool adds(ChunkIndex chunk) const {
    return adder_of(options_.division, chunk) == options_.division.place.rank;
  }
  /// Does a rank that adds get sums of other ranks?
  bool has_sums_of_others() const { return num_adders(options_.division) > 1; }

  const Plan& plan_;
  const PlanOptions& options_;
  Memory& memory_;
  Gradients& gradients_;
  Report& report_;
  RunningSums running_;  // if sums are chained
  std::vector<Sum> sums_;
  std::vector<OfChunk> chunks_;
  std::vector<std::vector<uint32_t>> chunks_of_sum_;  // [sum chunk] parameter chunks
  std::vector<uint32_t> in_slot_;                     // [slot] the sum chunk, or kNone
  OpIndex norms_sent_ = kNone, norms_received_ = kNone, last_add_ = kNone;
};

}  // namespace ebb::validation

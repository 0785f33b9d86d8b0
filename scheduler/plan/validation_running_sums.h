// Checks what a plan does with running sums (running_sums.h): each is copied when it is complete,
// added to once, announced, and overwritten only when the next rank has copied it. Part of
// validate(); one thread.
#pragma once

#include <array>
#include <vector>

#include "scheduler/plan/plan.h"
#include "scheduler/plan/running_sums.h"
#include "scheduler/plan/validation_memory.h"

namespace ebb::validation {

class RunningSums {
 public:
  RunningSums(const Plan& plan, const Division& division, Memory& memory, Report& report)
      : plan_(plan),
        division_(division),
        memory_(memory),
        report_(report),
        chunks_(plan.chunks.size()) {}

  void fetch(const Op& op);
  void add(const Op& op);
  void round(const Op& op);
  /// Message::SumCopied, TotalCopied.
  void send_copied(const Op& op);
  /// The same, and Message::Added of the rank from which a running sum is copied.
  void receive(const Op& op);
  void check_end();

 private:
  struct OfChunk {
    OpIndex sum_received = kNone, sum_fetched = kNone, added = kNone;
    OpIndex total_received = kNone, total_fetched = kNone, rounded = kNone;
    OpIndex taken = kNone;  // the next rank has copied the running sum
    uint32_t num_sum_sent = 0, num_total_sent = 0;
  };
  /// Does this rank copy the running sum of all groups from another machine?
  bool fetches_total(ChunkIndex chunk) const {
    return plan_.chunks[chunk].is_mine && !is_last_machine(division_.place);
  }
  void take_slot(BufferIndex slot, ChunkIndex chunk);

  const Plan& plan_;
  const Division& division_;
  Memory& memory_;
  Report& report_;
  std::vector<OfChunk> chunks_;
  std::array<ChunkIndex, kRunningSlots> in_slot_{};
};

}  // namespace ebb::validation

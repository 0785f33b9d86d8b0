// Which Sends of other ranks a Receive waits for. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "scheduler/plan/plan.h"

namespace ebb {

/// The Sends of a step of all ranks, by message.
class Sends {
 public:
  /// One plan of each rank, in the order of the ranks. The plans must outlive this object.
  explicit Sends(std::span<const Plan* const> plans);

  /// True if `is_done(rank, op)` is true for each Send that a Receive of `receiver` waits for.
  /// False if a rank that must send the message never does.
  template <class IsDone>
  bool are_done(const Op& receive, uint32_t receiver, const IsDone& is_done) const {
    const auto has_sent = [&](uint32_t rank) {
      if (was_sent_before(rank, receive)) return true;
      const OpIndex send = find(rank, receive);
      return send != kNone && is_done(rank, send);
    };
    const bool of_all = receive.message == Message::Sums || receive.message == Message::Norms;
    if (!of_all) return has_sent(plans_[receiver]->chunks[receive.chunk.index].owner);
    for (uint32_t rank = 0; rank < plans_.size(); ++rank) {
      if (rank != receiver && !has_sent(rank)) return false;
    }
    return true;
  }

 private:
  /// Is the message that of an update that this rank made and sent in the step before?
  bool was_sent_before(uint32_t rank, const Op& receive) const {
    return receive.message == Message::Weights && receive.deferred &&
           !plans_[rank]->chunks[receive.chunk.index].is_deferred();
  }
  /// The Send of this message in the plan of a rank; kNone if there is none.
  OpIndex find(uint32_t rank, const Op& receive) const;

  std::vector<const Plan*> plans_;
  std::vector<std::unordered_map<uint64_t, OpIndex>> sends_;  // [rank] by message
};

}  // namespace ebb

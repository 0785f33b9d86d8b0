// Which Sends of other ranks a Receive waits for. Pure functions.
//
// The plans are those of all ranks; or of a few ranks that stand for all (simulate.h). Then a rank
// with a plan stands for each owner without one, and a message of a rank without a plan counts as
// sent when another Send is done. Row i of the chunks has chunks i * p to i * p + p - 1, of which
// each of p ranks owns one.
//
// - Weights of a deferred update: when the rank that stands for the owner sends the message
//   about its own chunk of the same row, because all ranks update a row together.
// - Other weights, and Added by an owner: when all ranks with plans have sent their sums of this
//   chunk, and the rank that stands for the owner has sent the message about its chunk of the row
//   after this one, because a backward comes to the chunks in falling order.
// - Copied: when the receiver has sent it about the chunk of the same machine and row that it
//   fetches itself.
// - Messages about running sums: when the receiver has added its chunk before this one, because
//   the ranks of a chain add a chunk directly after each other. But the last rank adds after the
//   receiver and the ranks between.
// - Norms, if sums are chained: also when the last chunk of the receiver has passed the machines
//   after it.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "scheduler/plan/plan.h"
#include "scheduler/plan/running_sums.h"

namespace ebb {

/// A Send for which a Receive waits.
struct Sender {
  uint32_t place;  ///< of the plan that has it
  OpIndex send;    ///< kNone: the beginning of the step
  bool is_far;     ///< its rank, or the one that it stands for, is on another machine
  /// The message comes when so many ranks of other machines, one after the other, have copied the
  /// running sum of the chunk and added to it, after this Send.
  uint32_t num_relays = 0;
};

/// The Sends of a step, by message.
class Sends {
 public:
  /// One plan of each rank, in the order of the ranks; or of those that stand for all. The plans
  /// must outlive this object.
  explicit Sends(std::span<const Plan* const> plans);

  /// True if `is_done(Sender)` is true for each Send that a Receive in the plan at `receiver` waits
  /// for. False if a rank that has a plan must send the message and never does. A message of a rank
  /// without a plan counts as sent if no Send stands for it.
  template <class IsDone>
  bool are_done(const Op& receive, uint32_t receiver, const IsDone& is_done) const {
    if (receive.sender == kNone) return have_all_sent(receive, receiver, is_done);
    const uint32_t place = receive.sender - first_;
    if (place < plans_.size()) return has_sent(receive, receiver, place, is_done);
    if (receive.message == Message::Copied) {
      return has_sent_if_known(find_copied(receiver, receive), receiver, false, is_done);
    }
    const bool is_chained = plans_[receiver]->division.chains_sums;
    return is_chained && receive.message != Message::Weights
               ? has_adder_sent(receive, receiver, is_done)
               : has_owner_sent(receive, receiver, is_done);
  }

 private:
  template <class IsDone>
  bool has_sent(const Op& receive, uint32_t receiver, uint32_t place, const IsDone& is_done) const {
    if (was_sent_before(receive, place)) return true;
    const OpIndex send = find(place, receive);
    return send != kNone && is_done(Sender{place, send, is_far(receiver, place)});
  }
  /// For Sums, Norms and messages about split loads. Of chained sums, only those of the machine are
  /// sent to a rank, and so are messages about split loads.
  template <class IsDone>
  bool have_all_sent(const Op& receive, uint32_t receiver, const IsDone& is_done) const {
    const bool only_near = is_from_machine(receive, plans_[receiver]->division);
    for (uint32_t place = 0; place < plans_.size(); ++place) {
      if (place == receiver || (only_near && is_far(receiver, place))) continue;
      if (!has_sent(receive, receiver, place, is_done)) return false;
    }
    const bool waits_for_chain = receive.message == Message::Norms && plans_.size() < num_ranks_ &&
                                 last_added_[receiver] != kNone;
    if (!waits_for_chain) return true;
    const uint32_t num_relays = num_machines_after(plans_[receiver]->division.place);
    return is_done(Sender{receiver, last_added_[receiver], true, num_relays});
  }
  /// Is the Send done that stands for that of a rank without a plan? True if there is none.
  template <class IsDone>
  bool has_sent_if_known(OpIndex send, uint32_t at, bool is_far, const IsDone& is_done) const {
    return send == kNone || is_done(Sender{at, send, is_far});
  }
  /// Weights, or Added if sums are not chained, by an owner without a plan.
  template <class IsDone>
  bool has_owner_sent(const Op& receive, uint32_t receiver, const IsDone& is_done) const {
    if (was_sent_before(receive, receiver)) return true;
    const bool is_far = this->is_far(receiver, receive.sender - first_);
    const uint32_t stands_in = receive.sender % static_cast<uint32_t>(plans_.size());
    if (receive.deferred) {
      const OpIndex send = find_in_same_row(stands_in, receive);
      return has_sent_if_known(send, stands_in, is_far, is_done);
    }
    const Op sums{.chunk = receive.chunk, .message = Message::Sums};
    for (uint32_t at = 0; at < plans_.size(); ++at) {
      if (!has_sent_if_known(find(at, sums), at, is_far, is_done)) return false;
    }
    const OpIndex send = find_next_chunk(stands_in, receive, sums);
    return has_sent_if_known(send, stands_in, is_far, is_done);
  }
  /// A message about a running sum, by a rank without a plan.
  template <class IsDone>
  bool has_adder_sent(const Op& receive, uint32_t receiver, const IsDone& is_done) const {
    const RankPlace& place = plans_[receiver]->division.place;
    const bool is_total = receive.sender == last_adder(ChunkIndex(receive.chunk.index), place);
    if (is_total && receive.message == Message::Added) {
      const OpIndex own = find(receiver, receive);
      return own == kNone || is_done(Sender{receiver, own, true, num_machines_after(place)});
    }
    const bool is_far = this->is_far(receiver, receive.sender - first_);
    return has_sent_if_known(find_addition_before(receiver, receive), receiver, is_far, is_done);
  }

  /// Is the message that of an update that a rank made and sent in the step before?
  bool was_sent_before(const Op& receive, uint32_t place) const {
    return receive.message == Message::Weights && receive.deferred &&
           !plans_[place]->chunks[receive.chunk.index].is_deferred();
  }
  /// Are these ranks, counted from first_, on different machines?
  bool is_far(uint32_t a, uint32_t b) const;
  /// The Send of this message in a plan; kNone if there is none.
  OpIndex find(uint32_t place, const Op& receive) const;
  // The Send of the plan's own message that stands for one of a rank without a plan; kNone if there
  // is none:
  /// About the rank's chunk of this row; or if it sends none, of the nearest row before it.
  OpIndex find_in_same_row(uint32_t place, Op receive) const;
  /// About the rank's next chunk with a higher number, to which the backward comes first. `sums`:
  /// the message about sums of the same chunk.
  OpIndex find_next_chunk(uint32_t place, Op receive, const Op& sums) const;
  /// The plan's own message that it has added the chunk that it adds before this one; kNone if
  /// there is none.
  OpIndex find_addition_before(uint32_t place, const Op& receive) const;
  /// The plan's own message Copied about a chunk of the same machine, which it fetches at the same
  /// time; kNone if there is none.
  OpIndex find_copied(uint32_t place, Op receive) const;

  std::vector<const Plan*> plans_;
  uint32_t first_ = 0;  // the rank of the first plan
  uint32_t num_ranks_ = 0;
  std::vector<std::unordered_map<uint64_t, OpIndex>> sends_;  // [place] by message
  std::vector<OpIndex> last_added_;  // [place] about the last running sum; kNone: not chained
};

}  // namespace ebb

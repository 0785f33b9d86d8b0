// Which Sends of other ranks a Receive waits for. Pure functions.
//
// The plans are those of all ranks; or of a few ranks that stand for all (simulate.h). Round i has
// the chunks i * p to i * p + p - 1, of which each of p ranks owns one. A rank with a plan stands
// for owners without one. After a deferred update, such an owner is taken to send its message when
// the rank that stands for it sends the one about its own chunk of the same round, because all
// ranks update their chunks of a round at the same time. In the backward, which comes to the chunks
// in falling order, an owner adds sums when all ranks have sent them and it has added those of its
// chunk in round i + 1. So it is taken to send when all ranks with plans have sent their sums of
// this chunk, and the rank that stands for it has sent the message about its chunk of that round.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "scheduler/plan/plan.h"

namespace ebb {

/// A Send for which a Receive waits.
struct Sender {
  uint32_t place;  ///< of the plan that has it
  OpIndex send;
  bool is_far;  ///< its rank, or the one that it stands for, is on another machine
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
    if (receive.message == Message::Copied) return has_fetcher_sent(receive, receiver, is_done);
    const bool of_all = receive.message == Message::Sums || receive.message == Message::Norms;
    if (!of_all) return has_owner_sent(receive, receiver, is_done);
    for (uint32_t place = 0; place < plans_.size(); ++place) {
      if (place != receiver && !has_sent(receive, receiver, place, is_done)) return false;
    }
    return true;
  }

 private:
  template <class IsDone>
  bool has_sent(const Op& receive, uint32_t receiver, uint32_t place, const IsDone& is_done) const {
    if (was_sent_before(receive, place)) return true;
    const OpIndex send = find(place, receive);
    return send != kNone && is_done(Sender{place, send, is_far(receiver, place)});
  }
  template <class IsDone>
  bool has_owner_sent(const Op& receive, uint32_t receiver, const IsDone& is_done) const {
    const uint32_t owner = plans_[receiver]->chunks[receive.chunk.index].owner;
    const uint32_t place = owner - first_;
    if (place < plans_.size()) return has_sent(receive, receiver, place, is_done);
    if (was_sent_before(receive, receiver)) return true;
    const Op sums{.chunk = receive.chunk, .message = Message::Sums};
    const auto is_done_far = [&](uint32_t at, OpIndex send) {
      return send == kNone || is_done(Sender{at, send, is_far(receiver, place)});
    };
    const uint32_t stands_in = owner % static_cast<uint32_t>(plans_.size());
    if (receive.deferred) return is_done_far(stands_in, find_in_same_round(stands_in, receive));
    for (uint32_t at = 0; at < plans_.size(); ++at) {
      if (!is_done_far(at, find(at, sums))) return false;
    }
    return is_done_far(stands_in, find_in_round_before(stands_in, receive, sums));
  }

  template <class IsDone>
  bool has_fetcher_sent(const Op& receive, uint32_t receiver, const IsDone& is_done) const {
    const RankPlace& of_receiver = plans_[receiver]->division.place;
    const uint32_t place = of_receiver.fetcher_of(ChunkIndex(receive.chunk.index)) - first_;
    if (place < plans_.size()) return has_sent(receive, receiver, place, is_done);
    const OpIndex send = find_before(receiver, receive);
    return send == kNone || is_done(Sender{receiver, send, false});
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
  /// The Send of the plan's own message that stands for one of a rank without a plan; kNone if
  /// there is none. `sums`: the message about sums of the same chunk.
  OpIndex find_in_same_round(uint32_t place, Op receive) const;
  OpIndex find_in_round_before(uint32_t place, Op receive, const Op& sums) const;
  /// The plan's own message of this kind about the nearest chunk before that of the message; kNone
  /// if there is none.
  OpIndex find_before(uint32_t place, Op receive) const;

  std::vector<const Plan*> plans_;
  uint32_t first_ = 0;  // the rank of the first plan
  uint32_t num_ranks_ = 0;
  std::vector<std::unordered_map<uint64_t, OpIndex>> sends_;  // [place] by message
};

}  // namespace ebb

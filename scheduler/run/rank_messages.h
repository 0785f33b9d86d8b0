// What a rank says to the other ranks during a plan, and what it waits for: the messages of
// message.h, as signals (comm/ranks.h).
//
// The value of a signal is the number of a step, counted from 1 by this object, except for part
// slots. The signal of weights has the number of the step whose update they contain. So in step 1,
// which has no step before it, a wait for deferred updates ends at once. The value of a signal of a
// part slot counts the uses of the slot; each step begins at a multiple of the most uses that a
// slot has in a step.
//
// It also fetches weights and running sums from other machines.
//
// Thread-safety: send() and receive() run on the threads of the streams of their operations,
// fetch() on that of the fetch stream. The program thread calls the others while no plan runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/home.h"
#include "chunk/layout.h"
#include "comm/ranks.h"
#include "scheduler/plan/plan.h"

namespace ebb {

class RankMessages {
 public:
  /// Creates the signals of the ranks. Collective; one object for each Ranks. The arguments must
  /// outlive this object. `plan`: of a step.
  RankMessages(Ranks& ranks, const Layout& layout, const Home& home, const Plan& plan);
  ~RankMessages();
  RankMessages(const RankMessages&) = delete;
  RankMessages& operator=(const RankMessages&) = delete;

  /// To be called before the plan of a step, and before the flush plan after that step.
  void begin_step() { ++step_, flushes_ = false; }
  void begin_flush() { flushes_ = true; }
  void send(const Op& op);
  /// Blocks until the message is there. With norms, also copies the partial norms of the other
  /// ranks into the home of this rank. Throws RankLost.
  void receive(const Op& op);
  /// Copies weights, or a running sum, from the home of Op::sender: weights to their fetch slot, or
  /// without one to the copy of this machine. Throws RankLost.
  void fetch(const Op& op);

  /// "rank 2 has not finished the backward of h.17": the first message of the current step, in the
  /// order of the plan, that a rank has not sent; empty if all are sent. All later messages may
  /// wait for this one.
  std::string first_missing() const;

 private:
  /// The number of the signal of a Send or Receive. There is one for each message about each
  /// parameter chunk, one for the norms, and two for each part slot.
  uint32_t signal_of(const Op& op) const;
  uint32_t num_signals() const;
  /// The value to which a Send raises its signal, and for which a Receive waits.
  uint32_t value_of(const Op& op) const;
  void receive_norms();
  bool sends(uint32_t rank, const Op& op) const;
  RemotePart part_to_fetch(const Op& op) const;

  Ranks& ranks_;
  const Layout& layout_;
  const Home& home_;
  const Plan& plan_;
  uint32_t num_split_loads_ = 0;
  uint32_t step_ = 0;  // the number of the current step
  bool flushes_ = false;
  std::vector<RemotePart> parts_;
};

}  // namespace ebb

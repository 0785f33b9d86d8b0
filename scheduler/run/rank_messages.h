// What a rank says to the other ranks during a plan, and what it waits for: the messages of
// plan.h, as signals (comm/ranks.h).
//
// The value of a signal is the number of a step, counted from 1 by this object. Weights have the
// number of the step whose update they contain.
//
// Thread-safety: send() runs on the thread of the send stream, receive() on that of the receive
// stream. The program thread calls the others while no plan runs.
#pragma once

#include <cstdint>
#include <vector>

#include "chunk/home.h"
#include "chunk/layout.h"
#include "comm/ranks.h"
#include "scheduler/plan/plan.h"

namespace ebb {

class RankMessages {
 public:
  /// Creates the signals of this rank. Collective. The arguments must outlive this object.
  RankMessages(Ranks& ranks, const Layout& layout, const Home& home);

  /// The next plan is that of a step, or the flush plan after it.
  void begin_step() { ++step_, flushes_ = false; }
  void begin_flush() { flushes_ = true; }
  void send(const Op& op);
  /// Blocks until the message is there. Throws RankLost.
  void receive(const Op& op);

 private:
  /// The number of a signal. There is one for each message and parameter chunk.
  uint32_t signal_of(Message message, ChunkIndex chunk) const;
  void wait_for_all(uint32_t signal);
  void receive_norms();

  Ranks& ranks_;
  const Layout& layout_;
  const Home& home_;
  uint32_t step_ = 0;
  bool flushes_ = false;
};

}  // namespace ebb

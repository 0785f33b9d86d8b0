// A thread of a rank that is a process. It shows the other processes that this one is alive, and
// looks whether they are.
//
// A process that ends, in whatever way, is found within 0.2 s: its watch holds a robust mutex, and
// the kernel marks the mutex when the thread that holds it ends. This needs neither a parent
// process nor a common PID namespace, and does not wait until the memory of a large process is
// freed. A process that is stopped (SIGSTOP, a debugger) does not end. Its watch no longer counts
// up its beat, and after a time limit the others take it for lost. Only time in which this process
// runs counts, so a run that is stopped as a whole and continued is not lost.
//
// A rank of another machine is watched by the rank that receives its messages: the one with the
// same number on this machine. There, messages count up the beat. The watch is another thread than
// the one that receives them, so it works also when that one hangs.
//
// Thread-safety: the constructor and the destructor belong to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "comm/control_block.h"

namespace ebb {

class RankWatch {
 public:
  /// Marks the rank as joined. The thread announces a failure when it finds a rank lost. `block`
  /// outlives this object. Throws ConfigError if a process is this rank already.
  RankWatch(ControlBlock& block, uint32_t rank, double silence_s);
  /// Marks the rank as one that has left, so that the others do not take it for lost.
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

 private:
  struct Seen {
    uint32_t beat = 0;
    double silent_s = 0;  // for how long the beat is this one
  };
  void run();
  void look_at(uint32_t rank);
  void look_at_beat(uint32_t rank);
  void lost(const std::string& text) noexcept { announce_failure(block_, rank_, text); }

  ControlBlock& block_;
  const uint32_t rank_;
  const double silence_s_;
  std::vector<Seen> seen_;  // of each rank
  FutexWord stop_{};
  std::thread thread_;
};

/// Prepares the mutexes of a zeroed control block for ranks that are processes.
void prepare_watched_slots(ControlBlock& block);

}  // namespace ebb

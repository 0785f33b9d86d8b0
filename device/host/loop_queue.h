// Loops that follow one another over the cores with no barrier between them: bodies of the next
// begin while the last of the one before still run.
//
// At a barrier every thread waits for the slowest, which on cores that copies use as well may have
// lost its own for a millisecond. Here it holds up the ends of its own loop and of those behind it,
// and no body of the next three.
//
// The owner's thread pushes loops, works on them beside the queue's threads, and pops them in their
// order when they are done. Bodies are dealt one by one, to the threads of their node
// (tasks_of_node). Thread-safety: for the owner's thread. Allocates nothing after the first loops.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "device/host/parallel.h"
#include "device/loop.h"

namespace ebb {

class LoopQueue {
 public:
  static constexpr size_t kCapacity = 4;

  /// The owner's thread is one of them.
  explicit LoopQueue(int num_threads) : LoopQueue(deal_threads(num_threads, machine_nodes())) {}
  explicit LoopQueue(std::vector<NodeThreads> nodes);
  /// REQUIRES: it is empty.
  ~LoopQueue();
  LoopQueue(const LoopQueue&) = delete;
  LoopQueue& operator=(const LoopQueue&) = delete;

  size_t size() const { return static_cast<size_t>(end_ - begin_); }

  /// REQUIRES: size() < kCapacity, 1 <= loop.n < 2^31 - 1.
  void push(const Loop& loop);
  /// Runs a body of the oldest loop that has one left to begin; the newest `num_spared` loops are
  /// left to the others. False where there is none.
  bool run_one(size_t num_spared);
  /// Have all bodies of the oldest returned? REQUIRES: size() > 0.
  bool is_done() const;
  void wait_until_done() const;
  /// Removes the oldest, and calls its `then`; rethrows what a body threw, instead. REQUIRES:
  /// is_done().
  void pop();

 private:
  /// What is left to begin on a node. The loop's number stands beside the next index, so that who
  /// comes late takes nothing of a later loop as this one's.
  struct alignas(64) Share {
    std::atomic<uint64_t> next = 0;
    std::atomic<uint32_t> last = 0;
  };
  struct Slot {
    Loop loop;
    std::unique_ptr<Share[]> shares;  // of the nodes
    std::atomic<int64_t> num_left = 0;
    std::mutex mutex;
    std::exception_ptr error;
  };

  Slot& slot(uint32_t number) { return slots_[number % kCapacity]; }
  const Slot& slot(uint32_t number) const { return slots_[number % kCapacity]; }
  bool run_one_of(uint32_t number, size_t node);
  bool run_one_from(uint32_t begin, uint32_t end, size_t node);
  void help(size_t node);

  ThreadTeam team_;
  std::array<Slot, kCapacity> slots_;
  uint32_t begin_ = 0;                                // the oldest's number
  std::atomic<uint32_t> end_ = 0;                     // one past the newest's
  std::unique_ptr<std::atomic<int>[]> num_summoned_;  // to each node, that have not left yet
};

}  // namespace ebb

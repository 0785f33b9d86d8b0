// Ranks that are threads of one process: for tests, and for a process with several devices.
//
//   ThreadRanks ranks(4);
//   // thread i calls train(ranks.rank(i)) and, if it throws, ranks.rank(i).fail(what)
//
// A thread that ends without fail() is not noticed: the others wait for it until the time limit.
//
// Thread-safety: each rank as Ranks. REQUIRES: no rank is used when this object is destroyed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/ranks.h"

namespace ebb {

struct ThreadRanksOptions {
  double timeout_s = 60;  ///< the longest wait for another rank
  /// For tests: ranks of other machines, whose memory share() hides. 0: all are on one machine.
  /// REQUIRES: it divides the number of ranks.
  uint32_t ranks_per_machine = 0;
};

class ThreadRanks {
 public:
  /// REQUIRES: size >= 1.
  explicit ThreadRanks(uint32_t size, const ThreadRanksOptions& options = {});
  ~ThreadRanks();
  ThreadRanks(const ThreadRanks&) = delete;
  ThreadRanks& operator=(const ThreadRanks&) = delete;

  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }
  /// REQUIRES: rank < size().
  Ranks& rank(uint32_t rank);

 private:
  class Rank;
  struct Memory;
  std::unique_ptr<Memory> block_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace ebb

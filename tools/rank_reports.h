// What the ranks of a run tell each other between two steps: signals, notices, and how long a step
// took. Rank 0 prints the notices of all.
//
// Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "comm/ranks.h"
#include "tools/progress.h"
#include "tools/slow_rank.h"

namespace ebb {

class RankReports {
 public:
  /// `ranks`: null if there is one rank. `notices`: of the set-up; rank 0 has printed its own.
  RankReports(Ranks* ranks, RunProgress& progress, const std::vector<std::string>& notices);

  /// Returns the greatest signal of all ranks. On rank 0, prints what the other ranks noticed since
  /// the last call ("rank 2: ..."); the same text only once, even if several ranks or rank 0
  /// noticed it. `seconds`: SlowRank; 0: no step was made. Collective.
  uint8_t exchange(uint8_t signal, double seconds);

 private:
  void print_notices(const std::string& mine);

  Ranks* const ranks_;
  RunProgress& progress_;
  std::vector<std::string> unsaid_;  // not on rank 0
  std::set<std::string> said_;       // on rank 0
  SlowRank slow_rank_;
};

}  // namespace ebb

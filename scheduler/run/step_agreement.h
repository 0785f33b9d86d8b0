// What the ranks tell each other before a step or an evaluation, so that ranks that do not do the
// same end with an error, and not with a wait or with wrong bits. Pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "scheduler/search/preparation.h"

namespace ebb {

struct StepAnnouncement {
  uint64_t num_targets = 0;  ///< of the micro-batches of this rank
  uint64_t evaluates = 0;    ///< 1: an evaluation, 0: a step
  uint64_t step = 0;         ///< the number of the next step
  double learning_rate = 0;
  uint64_t plan = 0;  ///< hash_of_common_plan()
};

/// XXH64 of what the plans of all ranks have in common: the layout, the division, the options that
/// change results, and the part of the schedule that says when weights are updated.
uint64_t hash_of_common_plan(const Preparation& prepared);

/// Throws LogicError if a rank does not do what rank 0 does. The message names the first.
void check_same_work(std::span<const StepAnnouncement> ranks);

}  // namespace ebb

// The settings of a schedule as choose() searches them. Private to choose() and its refinement.
//
// Settings on which a dry run depends, and the order of updates, have few values: choose() tries
// all of them. The other settings are numbers. They are the rows of a table, which the refinement
// searches (scheduler/search/refine.h): a new setting is a new row. The table is made for one
// candidate, so a setting that each layer has on its own is a row for each layer.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "scheduler/search/preparation.h"

namespace ebb {

/// The combinations of values for the settings on which a dry run depends, simple ones first: the
/// requested values, or else all. Without a device budget nothing has to leave the device, so
/// activations stay on it, and only the horizontal order is tried, which needs the least memory. A
/// single micro-batch has only the horizontal order, too. `update` is not set; the numbers have the
/// requested values, or else default ones.
std::vector<Schedule> schedules_to_try(const Model& model, const TrainerOptions& options,
                                       const Budgets& budgets);
/// The values to try for the setting `update`: the requested one, or else all but Speculate. The
/// refinement tries Speculate for candidates with Overlap (Refinement::speculative()).
std::vector<UpdateOrder> update_orders(const ScheduleRequest& request);

/// May the planner choose the number of chunks with a speculative update?
inline bool may_choose_speculated(const TrainerOptions& requested) {
  return !requested.schedule.speculated_chunks && updates_after_norm(requested);
}

/// How the values of a setting are searched.
enum class SearchKind : uint8_t {
  Steps,   ///< up, or else down, in ever smaller steps
  Traces,  ///< as Steps, but each value needs a dry run, and then the other numbers are searched
  Fewest,  ///< first the largest value, then the smallest that is as good: others take more memory
};

/// A row of the table: a number of a schedule.
struct Setting {
  std::string_view name;
  SearchKind kind = SearchKind::Steps;
  bool may_change = true;  ///< may the search change it for this candidate?
  uint32_t least = 0;      ///< values from `least` to `most` are tried
  uint32_t most = 0;
  std::function<uint32_t(const Schedule&)> now = {};
  std::function<void(uint32_t value, Schedule&)> set = {};
  bool takes_blocks = false;       ///< a larger value leaves fewer blocks for activations
  bool takes_host_memory = false;  ///< a larger value leaves less host memory for activations
  bool adds_candidate = false;  ///< the largest value makes a second candidate, refined on its own
};

/// The settings that the search may change for the candidate `now`: they are not requested, and
/// they have an effect. `context` belongs to the candidate.
std::vector<Setting> settings_of(const TrainerOptions& requested, const Preparation& context,
                                 const Schedule& now);

}  // namespace ebb

// The settings of a schedule as choose() searches them. Private to choose() and its refinement.
//
// A dry run depends on the micro-batch order, the recomputation and the placement of activations.
// These settings, and the order of updates, have few values, and choose() tries all combinations.
// The other settings are numbers, and so is the amount of recomputation. They are the rows of a
// table, which the refinement searches (scheduler/search/refine.h): a new setting is a new row. The
// table is made for one candidate, so a setting that each layer had on its own would be a row for
// each layer.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "scheduler/search/preparation.h"

namespace ebb {

/// All combinations of values for the settings on which a dry run depends, simple ones first. A
/// setting that the user requests has only the requested value. Without a device budget nothing has
/// to leave the device: unless requested, activations stay on it. Without a device budget, or with
/// one micro-batch, only the first micro-batch order is returned: the requested one, or else the
/// horizontal one. The members `update` and `speculated_chunks` are not set. The other numbers have
/// the requested values, or else default values.
std::vector<Schedule> schedules_to_try(const Model& model, const TrainerOptions& options,
                                       const Budgets& budgets);
/// The values to try for the setting `update`: the requested one, or else Overlap and Wait. The
/// refinement tries UpdateOrder::Speculate for candidates with UpdateOrder::Overlap
/// (Refinement::speculative()).
std::vector<UpdateOrder> update_orders(const ScheduleRequest& request);

/// True if the planner may choose the number of chunks with a speculative update: the user has not
/// requested it, and updates wait for the norm. Otherwise no update needs to be speculative.
inline bool may_choose_speculated(const TrainerOptions& requested) {
  return !requested.schedule.speculated_chunks && updates_after_norm(requested);
}

/// How the values of a setting are searched.
enum class SearchKind : uint8_t {
  /// A search tries a larger value, and if it is not better, a smaller one. Its steps get smaller.
  Steps,
  /// As Steps, but each value has a dry run of its own. If plans are short, the settings of the
  /// kind Steps are searched for each value.
  Traces,
  /// A larger value takes more memory. A search tries the largest value first. In the end it tries
  /// to replace this value by the smallest one with which the step is not slower.
  Fewest,
};

/// A row of the table: a number of a schedule. The unit of a value is that of its row. For example,
/// one unit of `deferred_share` is 1/40 of the updates.
struct Setting {
  std::string_view name;
  SearchKind kind = SearchKind::Steps;
  bool may_change = true;  ///< true in all rows that settings_of() returns
  uint32_t least = 0;      ///< values from `least` to `most`, both included, are tried
  uint32_t most = 0;
  /// Returns the value that a schedule has.
  std::function<uint32_t(const Schedule&)> now = {};
  /// Changes the schedule so that it has this value.
  std::function<void(uint32_t value, Schedule&)> set = {};
  bool takes_blocks = false;       ///< a larger value leaves fewer blocks for activations
  bool takes_host_memory = false;  ///< a larger value leaves less host memory for activations
  /// Refinement::speculative() adds the candidate with the value `most` to the candidates.
  bool adds_candidate = false;
};

/// The rows of the settings that the search may change for the candidate with the schedule `now`:
/// the user has not requested them, and they have an effect. `context` is the result of
/// prepare_context() for `now`. The rows do not refer to the arguments.
std::vector<Setting> settings_of(const TrainerOptions& requested, const Preparation& context,
                                 const Schedule& now);

}  // namespace ebb

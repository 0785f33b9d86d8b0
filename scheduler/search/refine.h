// Searches the numbers of a candidate, such as chunks that the device updates and recomputed
// layers. choose() first compares candidates with default numbers, then refines the best ones.
//
// The search is a coordinate descent over the table of settings (scheduler/search/settings.h): it
// changes one number at a time, up or else down, in ever smaller steps, and keeps a change that
// makes the candidate better. Private to choose().
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "scheduler/search/evaluator.h"
#include "scheduler/search/settings.h"

namespace ebb {

/// Thread-safe if `run_dry` is.
class Refinement {
 public:
  /// Returns the context (scheduler/search/prepare.h) of this schedule.
  using RunDry = std::function<std::shared_ptr<const Preparation>(const Schedule&)>;

  /// `requested`: the options of the user, which must outlive this object, as `evaluator` must.
  /// `least_s`: the shortest time of a step so far.
  Refinement(const TrainerOptions& requested, const Evaluator& evaluator, RunDry run_dry,
             double least_s);

  /// The candidate with speculative updates of all chunks; nullopt if it is not better, cannot
  /// speculate, or has a plan too long to be tried. Candidates that speculate are refined on their
  /// own, because other numbers are best for them.
  std::optional<PlannedCandidate> speculative(const PlannedCandidate& c) const;
  /// Gives the settings of the kind Fewest their largest values, if memory allows it and the step
  /// is not slower. Then searches the settings of the kind Steps in large steps.
  void refine(PlannedCandidate& c) const;
  /// Does the candidate have settings of the kind Traces?
  bool may_change_trace(const PlannedCandidate& c) const;
  /// Searches the settings of the kind Traces.
  void change_trace(PlannedCandidate& c) const;
  /// Searches all settings again in small steps; those of the kind Traces only if the plan is
  /// short. Then searches the smallest values of the settings of the kind Fewest that are as good;
  /// or larger values, if the largest do not fit.
  void refine_finely(PlannedCandidate& c) const;

 private:
  /// The rows of this kind in the candidate's table.
  std::vector<Setting> settings(const PlannedCandidate& c, SearchKind kind) const;
  /// False if the kernels of the candidate alone take longer than another whole step.
  bool may_win(const PlannedCandidate& c) const;
  /// Searches the settings of a kind. The first steps are the largest value / `from`, the next ones
  /// half as long, and the last ones the largest value / `to`.
  void search(PlannedCandidate& c, SearchKind kind, uint32_t from, uint32_t to) const;
  void try_step(PlannedCandidate& c, const Setting& setting, uint32_t part) const;
  void take_fewest(PlannedCandidate& c, const Setting& setting) const;
  // Functions that return bool try one value of a setting, and return whether they have replaced
  // the candidate by the candidate with this value.
  /// Replaces the candidate if it is better with the value.
  bool try_value(PlannedCandidate& c, const Setting& setting, uint32_t value) const;
  bool replaces_with_trace(PlannedCandidate other, PlannedCandidate& c) const;
  /// Replaces the candidate also if it is equally good with the value.
  bool takes(PlannedCandidate& c, const Setting& setting, uint32_t value) const;
  /// Plans the candidate, if necessary with smaller values of settings that take host memory.
  /// Returns whether it fits.
  bool plans_with_less_at_home(PlannedCandidate& c) const;
  /// Sets settings that take blocks to 0 if the candidate is better then.
  void make_room(PlannedCandidate& c) const;

  const TrainerOptions& requested_;
  const Evaluator& evaluator_;
  const RunDry run_dry_;
  const double least_s_;
};

}  // namespace ebb

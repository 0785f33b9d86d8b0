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

/// A candidate is better if is_better() says so (scheduler/search/evaluator.h). A plan is short if
/// it has at most 150,000 operations: planning a longer one again takes seconds.
///
/// Besides their argument, the functions change only the results that `evaluator` stores. Several
/// threads may call them at once for different candidates, if `run_dry` is thread-safe.
class Refinement {
 public:
  /// Returns a context (scheduler/search/prepare.h) of this schedule, never null; the settings on
  /// which a context does not depend may differ. Its exceptions reach the caller.
  using RunDry = std::function<std::shared_ptr<const Preparation>(const Schedule&)>;

  /// `requested`: the options of the user, which must outlive this object, as `evaluator` must.
  /// `least_s`: the shortest predicted time of a step, in seconds, of all candidates so far.
  Refinement(const TrainerOptions& requested, Evaluator& evaluator, RunDry run_dry, double least_s);

  /// The candidate `c` with speculative updates of all chunks. Returns nullopt if that candidate is
  /// not better than `c`, if `c` may not speculate, or if the plan of `c` is not short. Candidates
  /// that speculate are refined on their own, because other numbers are best for them.
  std::optional<PlannedCandidate> speculative(const PlannedCandidate& c) const;
  /// Gives the settings of the kind Fewest their largest values, if memory allows it and the step
  /// is not slower. Then, if the candidate may win (may_win), searches the settings of the kind
  /// Steps in large steps.
  void refine(PlannedCandidate& c) const;
  /// Does the candidate have settings of the kind Traces?
  bool may_change_trace(const PlannedCandidate& c) const;
  /// Searches the settings of the kind Traces.
  void change_trace(PlannedCandidate& c) const;
  /// Searches the settings of the kind Steps again in small steps, and those of the kind Traces if
  /// the plan is short. Then reduces the values of the settings of the kind Fewest (take_fewest).
  /// Does nothing if the candidate cannot win (may_win).
  void refine_finely(PlannedCandidate& c) const;

 private:
  /// The rows of this kind in the candidate's table.
  std::vector<Setting> settings(const PlannedCandidate& c, SearchKind kind) const;
  /// False if the kernels of the candidate alone take longer than `least_s`.
  bool may_win(const PlannedCandidate& c) const;
  /// Searches the settings of a kind. The length of the first steps is the largest value divided by
  /// `from`. The length is halved until it is the largest value divided by `to`.
  void search(PlannedCandidate& c, SearchKind kind, uint32_t from, uint32_t to) const;
  /// Tries the value one step above the current one, and if that is not better, one step below. The
  /// length of the step is the largest value divided by `part`.
  void try_step(PlannedCandidate& c, const Setting& setting, uint32_t part) const;
  /// If the setting has its largest value, takes the smallest value that is not worse. If it has a
  /// smaller value, for example because memory is too small for the largest, increases the value by
  /// one as long as the candidate becomes better.
  void take_fewest(PlannedCandidate& c, const Setting& setting) const;
  // The next three functions try one value of a setting. They return whether they have replaced
  // the candidate by the candidate with this value.
  /// Replaces the candidate if it is better with the value.
  bool try_value(PlannedCandidate& c, const Setting& setting, uint32_t value) const;
  /// As try_value() for a value that needs a dry run. `other` is the candidate with the value.
  bool replaces_with_trace(PlannedCandidate other, PlannedCandidate& c) const;
  /// Replaces the candidate if it is better or equally good with the value.
  bool takes(PlannedCandidate& c, const Setting& setting, uint32_t value) const;
  /// Plans the candidate. As long as memory is too small, reduces a setting that takes host memory
  /// and plans again. Returns whether the candidate fits the budgets in the end.
  bool plans_with_less_at_home(PlannedCandidate& c) const;
  /// Sets each setting that takes blocks to 0, if the candidate is better with 0.
  void make_room(PlannedCandidate& c) const;

  const TrainerOptions& requested_;
  Evaluator& evaluator_;
  const RunDry run_dry_;
  const double least_s_;
};

}  // namespace ebb

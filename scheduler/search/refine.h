// Searches the numbers of a candidate, such as chunks that the device updates and recomputed
// layers. choose() first compares candidates with default numbers, then refines the best ones.
//
// Each search changes one number at a time, up or else down, in ever smaller steps, and keeps a
// change that makes the candidate better. Only settings that are nullopt or Auto are changed.
// Private to choose().
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "scheduler/search/evaluator.h"

namespace ebb {

/// Thread-safe if `run_dry` is.
class Refinement {
 public:
  /// Returns the context (scheduler/search/prepare.h) of these options.
  using RunDry = std::function<std::shared_ptr<const Preparation>(const TrainerOptions&)>;

  /// `requested`: the options of the user. `least_s`: the shortest time of a step so far.
  Refinement(const TrainerOptions& requested, const Evaluator& evaluate, RunDry run_dry,
             double least_s);

  /// The candidate with speculative updates of all chunks; nullopt if it is not better, cannot
  /// speculate, or has a plan too long to be tried. Candidates that speculate are refined on their
  /// own, because other numbers are best for them.
  std::optional<PlannedCandidate> speculative(const PlannedCandidate& c) const;
  /// Gives every gradient a buffer, if host memory allows it and the step is not slower. Then
  /// searches in large steps: the numbers of device updates, speculative updates and resident
  /// chunks, and the share of deferred updates.
  void refine(PlannedCandidate& c) const;
  /// May the number of recomputed layers of the candidate be chosen?
  bool may_recompute_fewer(const PlannedCandidate& c) const;
  /// Searches the number of recomputed layers. If plans are short, the numbers of refine() are
  /// searched again for each number of layers.
  void recompute_fewer(PlannedCandidate& c) const;
  /// Searches these numbers again in small steps. Then searches for the smallest number of gradient
  /// buffers that is as fast; or for a larger number, if not all gradients have a buffer.
  void refine_finely(PlannedCandidate& c) const;

 private:
  // may_...() say whether a number may be searched for this candidate. Other functions that return
  // bool try one value of a number, and return whether the candidate is better with it; then they
  // replace the candidate.
  /// False if the kernels of the candidate alone take longer than another whole step.
  bool may_win(const PlannedCandidate& c) const;
  /// Searches all numbers but gradient buffers and recomputed layers. With `most`, the largest
  /// value of a number, it changes the number by most / from, then by half of that, ..., by most /
  /// to.
  void search(PlannedCandidate& c, uint32_t from, uint32_t to) const;
  /// Tries one step of most / part for each number.
  void try_steps(PlannedCandidate& c, uint32_t part) const;
  void search_recomputed(PlannedCandidate& c, uint32_t from, uint32_t to) const;
  bool recompute(PlannedCandidate& c, uint32_t amount) const;
  /// Plans the candidate, if necessary with fewer undo logs and gradient buffers. Returns whether
  /// it fits.
  bool plans_with_less_at_home(PlannedCandidate& c) const;
  /// Removes device updates and resident weights if the candidate is better without them.
  void make_room(PlannedCandidate& c) const;
  bool may_speculate_on(const PlannedCandidate& c) const;
  bool speculate_on(PlannedCandidate& c, uint32_t num) const;
  bool update_on_device(PlannedCandidate& c, uint32_t num) const;
  bool keep_resident(PlannedCandidate& c, uint32_t num) const;
  bool may_defer(const PlannedCandidate& c) const;
  bool defer(PlannedCandidate& c, double share) const;
  /// Tries a buffer for every gradient.
  void take_gradient_buffers(PlannedCandidate& c) const;
  /// Tries fewer buffers, or more if not every gradient has one.
  void shrink_gradient_buffers(PlannedCandidate& c) const;
  /// Replaces the candidate also if it is equally good with `num` gradient buffers.
  bool takes_buffers(PlannedCandidate& c, uint32_t num) const;
  /// Tries the candidate with changed options.
  template <class Change>
  bool try_instead(PlannedCandidate& c, const Change& change) const;

  const Evaluator& evaluator_;
  const RunDry run_dry_;
  const double least_s_;
  const bool may_choose_recomputed_, may_speculate_, may_choose_speculated_;
  const bool may_choose_device_updates_, may_choose_resident_, may_choose_deferred_,
      may_choose_buffers_;
};

}  // namespace ebb

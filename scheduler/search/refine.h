// What is left open when settings are compared: numbers between none and all, searched for those
// settings that may be the choice. Private to the planner that chooses.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "scheduler/search/evaluator.h"

namespace ebb {

/// Looks near what a contender has, with ever smaller steps on and back. Thread-safe as far as
/// `run_dry` is.
class Refinement {
 public:
  using RunDry = std::function<std::shared_ptr<const Preparation>(const TrainerOptions&)>;

  /// `told`: what is open there may be chosen. `least_s`: of the fastest step so far.
  Refinement(const TrainerOptions& requested, const Evaluator& evaluate, RunDry run_dry,
             double least_s);

  /// With updates in hope from the beginning other numbers are best than with hope at last. None:
  /// that is no better, or there is no time for it.
  std::optional<PlannedCandidate> speculative(const PlannedCandidate& c) const;
  /// Places for gradients at home, chunks to update on the device, to speculate on and to hold, the
  /// share of updates to carry: in large steps.
  void refine(PlannedCandidate& c) const;
  /// Is it open how many of its blocks are recomputed?
  bool may_recompute_fewer(const PlannedCandidate& c) const;
  /// That number, and all those for each that is tried.
  void recompute_fewer(PlannedCandidate& c) const;
  /// All of them once more in small steps, and as many places for gradients as help.
  void refine_finely(PlannedCandidate& c) const;

 private:
  bool may_win(const PlannedCandidate& c) const;
  void search(PlannedCandidate& c, uint32_t from, uint32_t to) const;
  void try_steps(PlannedCandidate& c, uint32_t part) const;
  void search_recomputed(PlannedCandidate& c, uint32_t from, uint32_t to) const;
  bool recompute(PlannedCandidate& c, uint32_t amount) const;
  bool plans_with_less_at_home(PlannedCandidate& c) const;
  void make_room(PlannedCandidate& c) const;
  bool may_speculate_on(const PlannedCandidate& c) const;
  bool speculate_on(PlannedCandidate& c, uint32_t num) const;
  bool update_on_device(PlannedCandidate& c, uint32_t num) const;
  bool keep_resident(PlannedCandidate& c, uint32_t num) const;
  bool may_defer(const PlannedCandidate& c) const;
  bool defer(PlannedCandidate& c, double share) const;
  void take_gradient_buffers(PlannedCandidate& c) const;
  void shrink_gradient_buffers(PlannedCandidate& c) const;
  bool takes_buffers(PlannedCandidate& c, uint32_t num) const;
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

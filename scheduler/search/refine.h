// What is left open when settings are compared: numbers between none and all, searched for those
// settings that may be the choice. Private to the planner that chooses.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "scheduler/search/contender.h"

namespace ebb {

/// Looks near what a contender has, with ever smaller steps on and back. Thread-safe as far as
/// `run_dry` is.
class Refinement {
 public:
  using RunDry = std::function<std::shared_ptr<const Preparation>(const TrainerOptions&)>;

  /// `told`: what is open there may be chosen. `least_s`: of the fastest step so far.
  Refinement(const TrainerOptions& told, const Judge& judge, RunDry run_dry, double least_s);

  /// With updates in hope from the beginning other numbers are best than with hope at last. None:
  /// that is no better, or there is no time for it.
  std::optional<Contender> in_hope(const Contender& c) const;
  /// Places for gradients at home, chunks to update on the device, to speculate on and to hold, the
  /// share of updates to carry: in large steps.
  void refine(Contender& c) const;
  /// Is it open how many of its blocks are recomputed?
  bool may_recompute_fewer(const Contender& c) const;
  /// That number, and all those for each that is tried.
  void recompute_fewer(Contender& c) const;
  /// All of them once more in small steps, and as many places for gradients as help.
  void polish(Contender& c) const;

 private:
  bool may_win(const Contender& c) const;
  void search(Contender& c, uint32_t from, uint32_t to) const;
  void turn_all(Contender& c, uint32_t part) const;
  void search_recomputed(Contender& c, uint32_t from, uint32_t to) const;
  bool recompute(Contender& c, uint32_t amount) const;
  bool plans_with_less_at_home(Contender& c) const;
  void make_room(Contender& c) const;
  bool may_speculate_on(const Contender& c) const;
  bool speculate_on(Contender& c, uint32_t num) const;
  bool update_on_device(Contender& c, uint32_t num) const;
  bool hold(Contender& c, uint32_t num) const;
  bool may_carry(const Contender& c) const;
  bool carry(Contender& c, double share) const;
  void take_gradient_slots(Contender& c) const;
  void settle_gradient_slots(Contender& c) const;
  bool takes_slots(Contender& c, uint32_t num) const;
  template <class Change>
  bool try_instead(Contender& c, const Change& change) const;

  const Judge& judge_;
  const RunDry run_dry_;
  const double least_s_;
  const bool may_choose_recomputed_, may_speculate_, may_choose_speculated_;
  const bool may_choose_device_updates_, may_choose_held_, may_choose_carried_, may_choose_slots_;
};

}  // namespace ebb

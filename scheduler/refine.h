// What is left open when settings are compared: numbers between none and all, searched for those
// settings that may be the choice. Private to the planner that chooses.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "scheduler/contender.h"

namespace ebb {

/// Thread-safe as far as `run_dry` is.
class Refinement {
 public:
  using RunDry = std::function<std::shared_ptr<const Preparation>(const TrainerOptions&)>;

  /// `told`: what is open there may be chosen. `least_s`: of the fastest step so far.
  Refinement(const TrainerOptions& told, const Judge& judge, RunDry run_dry, double least_s);

  /// Blocks to recompute, places for gradients at home, chunks to update on the device, to
  /// speculate on and to hold, the share of updates to carry: one after the other, in large steps.
  void refine(Contender& c) const;
  /// A few updates on the device or in hope more or fewer, once what else hides updates is known;
  /// and as many places for gradients as help.
  void polish(Contender& c) const;

 private:
  void refine_rest(Contender& c) const;
  void refine_numbers(Contender& c) const;
  void refine_instead(Contender& c, Contender other) const;
  bool may_win(const Contender& c) const;
  bool may_speculate_on(const Contender& c) const;
  bool recompute_fewer(Contender& c) const;
  bool recompute(const Contender& from, Contender& c, uint32_t num,
                 std::optional<uint32_t> of) const;
  void speculate(Contender& c) const;
  void speculate_near(Contender& c, uint32_t step, uint32_t least) const;
  void speculate_on(Contender& c, uint32_t num) const;
  void refine_device_updates(Contender& c) const;
  void update_on_device(Contender& c, uint32_t num) const;
  void hold_and_carry(Contender& c) const;
  void polish_held_and_carried(Contender& c) const;
  static uint32_t most_held(const Contender& c);
  void hold(Contender& c, uint32_t num) const;
  bool may_carry(const Contender& c) const;
  void carry(Contender& c, double share) const;
  void take_gradient_slots(Contender& c) const;
  void settle_gradient_slots(Contender& c) const;
  bool takes_slots(Contender& c, uint32_t num) const;
  static Contender with_slots(const Contender& c, uint32_t num);
  template <class Change>
  void try_instead(Contender& c, const Change& change) const;

  const Judge& judge_;
  const RunDry run_dry_;
  const double least_s_;
  const bool may_recompute_fewer_, may_speculate_, may_choose_speculated_;
  const bool may_choose_device_updates_, may_choose_held_, may_choose_carried_, may_choose_slots_;
};

}  // namespace ebb

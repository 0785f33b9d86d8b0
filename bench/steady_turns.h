// Coroutines of a benchmark, of which those count beside which the cores were as fast as they were
// planned to be.
//
// Others on the same machine take memory bandwidth that no clock here shows, from one minute to the
// next. So Adam and copies are measured before and after every turn, and a turn counts where
// neither was more than a tenth (the tolerance) faster or slower than at first, and where other
// processes took less than 4 % of a core.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "bench/cores.h"
#include "bench/load_gate.h"

namespace ebb::bench {

class SteadyTurns {
 public:
  explicit SteadyTurns(CoresMeter& meter, double tolerance = 1.1)
      : meter_(meter), tolerance_(tolerance), planned_(meter.measure()) {}

  /// What rates are to be chosen for.
  const Cores& planned() const { return planned_; }
  /// Are the cores still so, before the next turn?
  bool as_planned() {
    before_ = meter_.measure();
    return is_as_planned(*before_);
  }

  template <class Body>
  void take(const Body& body) {
    const Cores before = before_ ? *before_ : meter_.measure();
    const LoadGate gate;
    body();
    const bool quiet = gate.quiet();
    const Cores after = meter_.measure();
    turns_.push_back(
        {.cores = {.update_bytes_per_s = middle(before, after, &Cores::update_bytes_per_s),
                   .copy_bytes_per_s = middle(before, after, &Cores::copy_bytes_per_s)},
         .steady = quiet && is_as_planned(before) && is_as_planned(after)});
    before_ = after;
  }

  size_t num_steady() const {
    return static_cast<size_t>(std::ranges::count(turns_, true, &RotaryDirection::steady));
  }
  /// The median of a value of each turn, over those that count; over all where none does.
  template <class ValueOf>
  double median_of(const ValueOf& value_of) const {
    const bool all = num_steady() == 0;
    std::vector<double> values;
    for (size_t i = 0; i < turns_.size(); ++i) {
      if (all || turns_[i].steady) values.push_back(value_of(i));
    }
    return median(std::move(values));
  }
  double median_of(const std::vector<double>& values) const {
    return median_of([&](size_t turn) { return values[turn]; });
  }
  /// What the cores could do beside them.
  Cores cores() const {
    const auto middle_of = [&](double Cores::*rate) {
      return median_of([&](size_t turn) { return turns_[turn].cores.*rate; });
    };
    return {.update_bytes_per_s = middle_of(&Cores::update_bytes_per_s),
            .copy_bytes_per_s = middle_of(&Cores::copy_bytes_per_s)};
  }

 private:
  struct RotaryDirection {
    Cores cores;
    bool steady;
  };

  static double middle(const Cores& a, const Cores& b, double Cores::*rate) {
    return (a.*rate + b.*rate) / 2;
  }
  bool is_as_planned(const Cores& cores) const {
    const auto near = [&](double a, double b) {
      return std::max(a, b) < tolerance_ * std::min(a, b);
    };
    return near(cores.update_bytes_per_s, planned_.update_bytes_per_s) &&
           near(cores.copy_bytes_per_s, planned_.copy_bytes_per_s);
  }

  CoresMeter& meter_;
  const double tolerance_;
  const Cores planned_;
  std::optional<Cores> before_;  // the next turn
  std::vector<RotaryDirection> turns_;
};

}  // namespace ebb::bench

// Rounds of whole steps, and medians over them.
//
// A round runs each compared program once, so the ratios of a round belong to one state of the
// machine. Other virtual machines on the same hardware use memory bandwidth, which this machine
// cannot see. So there is one filter: the rate of Adam is measured before and after each round. If
// the two differ by more than 10 %, the round is repeated, at most three times; then it is kept.
// The results say how many rounds were repeated, and how many were kept although they differ.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "bench/core_rates.h"

namespace ebb::bench {

template <class Result>
class Rounds {
 public:
  /// Calls `round` until there are `count` results.
  Rounds(CoreRatesMeter& meter, size_t count, const std::function<Result()>& round) {
    constexpr int kMostRepeats = 3;
    CoreRates before = meter.measure();
    for (int repeats = 0; results_.size() < count;) {
      Result result = round();
      const CoreRates after = meter.measure();
      const CoreRates beside = middle(before, after);
      const bool steady = is_steady(before.update_bytes_per_s, after.update_bytes_per_s);
      before = after;
      if (!steady && repeats < kMostRepeats) {
        ++repeats;
        continue;
      }
      num_repeated_ += repeats > 0;
      num_different_ += !steady;
      repeats = 0;
      results_.push_back(std::move(result));
      rates_.push_back(beside);
    }
  }

  const std::vector<Result>& results() const { return results_; }

  /// The median over the rounds of a value: a member, or a function of a Result.
  template <class Value>
  double median_of(const Value& value) const {
    return median_over(results_, value);
  }
  /// The medians of the rates of the cores before and after the rounds.
  CoreRates rates() const {
    return {.update_bytes_per_s = median_over(rates_, &CoreRates::update_bytes_per_s),
            .copy_bytes_per_s = median_over(rates_, &CoreRates::copy_bytes_per_s)};
  }
  /// "rounds: 5, repeated: 1, kept although the rate of Adam changed: 0"
  std::string text() const {
    return fmt::format("rounds: {}, repeated: {}, kept although the rate of Adam changed: {}",
                       results_.size(), num_repeated_, num_different_);
  }

 private:
  static bool is_steady(double a, double b) { return std::max(a, b) <= 1.1 * std::min(a, b); }
  static CoreRates middle(const CoreRates& a, const CoreRates& b) {
    return {.update_bytes_per_s = (a.update_bytes_per_s + b.update_bytes_per_s) / 2,
            .copy_bytes_per_s = (a.copy_bytes_per_s + b.copy_bytes_per_s) / 2};
  }
  template <class T, class Value>
  static double median_over(const std::vector<T>& items, const Value& value) {
    std::vector<double> values;
    for (const T& item : items) values.push_back(std::invoke(value, item));
    return median(std::move(values));
  }

  std::vector<Result> results_;
  std::vector<CoreRates> rates_;  // measured around each result
  int num_repeated_ = 0, num_different_ = 0;
};

}  // namespace ebb::bench

// Passes measured in turn, round by round, in one process: so that their ratios mean something on a
// machine that others use, too. A sample counts only while others leave the cores alone
// (load_gate.h).
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "bench/load_gate.h"

namespace ebb::bench {

/// Runs something often enough for a sample; returns seconds of one time.
using Sample = std::function<double()>;

struct Rounds {
  std::vector<std::vector<double>> seconds;  // [round][sample]
  bool quiet = true;                         // or: no round was

  double median(size_t sample) const {
    return middle([&](const auto& round) { return round[sample]; });
  }
  /// The median of how many times as long sample a takes as sample b in the same round.
  double ratio(size_t a, size_t b) const {
    return middle([&](const auto& round) { return round[a] / round[b]; });
  }

 private:
  template <class Value>
  double middle(const Value& value) const {
    std::vector<double> values;
    for (const auto& round : seconds) values.push_back(value(round));
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }
};

/// Repeats `body` in pairs (so that what undoes itself has) until the sample is long beside the
/// 10 ms in which the kernel counts busy time.
template <class Body>
double seconds_of(const Body& body, double at_least_s = 0.3) {
  const auto start = Clock::now();
  int times = 0;
  do {
    body();
    body();
    times += 2;
  } while (seconds_since(start) < at_least_s);
  return seconds_since(start) / times;
}

/// Rounds until `wanted` of them had quiet samples only, each tried a few times; then only those,
/// or all if none was.
inline Rounds measure_rounds(std::span<const Sample> samples, int wanted = 7, int at_most = 12) {
  constexpr int kTries = 4;
  Rounds all, quiet;
  while (std::ssize(all.seconds) < at_most && std::ssize(quiet.seconds) < wanted) {
    std::vector<double> round;
    bool round_quiet = true;
    for (const Sample& sample : samples) {
      bool sample_quiet = false;
      double seconds = 0;
      for (int i = 0; i < kTries && !sample_quiet; ++i) {
        const LoadGate gate;
        seconds = sample();
        sample_quiet = gate.quiet();
      }
      round.push_back(seconds);
      round_quiet = round_quiet && sample_quiet;
    }
    if (round_quiet) quiet.seconds.push_back(round);
    all.seconds.push_back(std::move(round));
  }
  all.quiet = false;
  return quiet.seconds.empty() ? all : quiet;
}

}  // namespace ebb::bench

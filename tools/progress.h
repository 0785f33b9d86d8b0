// What a run says while it runs: one live line on a terminal, plain lines elsewhere, notices
// between them.
//
// Plain lines come at most one a second, but the first step, the last and every evaluation always
// do. A terminal or a reader that went away is no reason to end a run: what cannot be written is
// lost. Thread-safety: all methods may be called from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

#include "tools/run_log.h"

namespace ebb {

inline constexpr size_t kAnyWidth = SIZE_MAX;

/// "step 12/100  loss 3.4567  norm 0.981  lr 3.00e-04  1234 tok/s  93 % of bound  stall 4 %  2m10s
/// left". What does not fit into `width` columns is left out, the least important first: a line
/// that wraps cannot be written over.
std::string format_step(const StepRecord& record, uint64_t num_steps, double seconds_left,
                        size_t width = kAnyWidth);

/// "8s", "2m10s", "3h05m"
std::string format_duration(double seconds);

class RunProgress {
 public:
  using Seconds = std::chrono::duration<double>;
  RunProgress(std::FILE* out, bool live, uint64_t num_steps, Seconds plain_interval = Seconds(1));
  ~RunProgress();

  void step(const StepRecord& record);
  /// A line of its own; the live line goes on after it.
  void notice(std::string_view text);
  /// Leaves the live line as it is; the next output begins a line.
  void finish();

 private:
  bool due(const StepRecord& record);
  void show_live(const std::string& line);
  void print(std::string_view text);

  std::mutex mutex_;
  std::FILE* out_;
  const bool live_;
  const uint64_t num_steps_;
  const Seconds plain_interval_;
  std::chrono::steady_clock::time_point last_shown_{};
  double mean_step_s_ = 0;
  std::string live_line_;
};

}  // namespace ebb

// The progress of a run on stderr: one live line on a terminal, plain lines elsewhere, and notices.
//
// Plain lines are written at most once a second, but always for the first step, the last step and
// evaluations. If a terminal or reader was closed, the run continues and the lines are lost.
// Thread-safety: all methods may be called from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/run_log.h"

namespace ebb {

inline constexpr size_t kAnyWidth = SIZE_MAX;

/// "step 12/100  loss 3.4567  norm 0.981  lr 3.00e-04  1234 tok/s  93 % of bound  stall 4 %  2m10s
/// left". Parts that do not fit into `width` columns are left out, the least important first,
/// because a wrapped line cannot be overwritten.
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
  /// Writes a line. The live line continues after it.
  void notice(std::string_view text);
  /// From now on, take_notices() returns the notices since its last call.
  void keep_notices();
  std::vector<std::string> take_notices();
  /// Ends the live line. The next output begins a new line.
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
  bool keeps_notices_ = false;
  std::vector<std::string> notices_;
};

}  // namespace ebb

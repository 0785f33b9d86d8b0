// The timeline of a run as Chrome trace events (JSON; opens in Perfetto and in Chrome's tracing):
// a thread for each stream, an arrow from each load to the first operation that waits for it, and
// counters of the bytes resident on the device.
//
// The format is "Trace Event Format": an array of objects, times in microseconds. Each step is
// written as soon as it ends; readers accept an array without its end. Not thread-safe.
// Errors: IoError.
#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>

#include "scheduler/run/trainer.h"

namespace ebb {

class ChromeTrace {
 public:
  /// Replaces the file.
  explicit ChromeTrace(const std::string& path);
  ~ChromeTrace();
  ChromeTrace(const ChromeTrace&) = delete;
  ChromeTrace& operator=(const ChromeTrace&) = delete;

  /// Adds the next step. It begins at the end of the previous step.
  void add_step(const Preparation& prepared, std::span<const OpTime> times, uint64_t step,
                double step_s);

 private:
  void write(const std::string& events);

  std::string path_;
  std::ofstream file_;
  double begin_s_ = 0;
  uint64_t num_flows_ = 0;
};

/// "load weights 12", "linear", "update 3": the name of an operation of a plan.
std::string op_name(const Op& op, const Trace& trace);

}  // namespace ebb

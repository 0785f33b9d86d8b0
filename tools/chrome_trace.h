// The timeline of a run as Chrome trace events (JSON; opens in Perfetto and in Chrome's tracing):
// a process for each rank with a thread for each stream, an arrow from each load to the first
// operation of the compute stream that waits for it, and counters of the bytes in blocks of the
// device. A call names its layer; what moves or updates weights or gradients names layers and
// parameters; a move has its bytes and its reason, too; a fetch has no
// reason.
//
// The format is "Trace Event Format": an array of objects, times in microseconds. Each step is
// written as soon as it ends; readers accept an array without its end. The first event contains the
// id of the run. Rank 0 writes the events of all ranks. Their clocks are not compared: a step is
// drawn as if all ranks began it together.
//
// Not thread-safe. Errors: those of AppendFile; with several ranks also those of Ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/ranks.h"
#include "scheduler/run/trainer.h"
#include "tools/append_file.h"

namespace ebb {

class ChromeTrace {
 public:
  /// The event of an operation, without its times, which stand between the two texts.
  struct OpEvent {
    std::string begin, end;
  };

  /// Of a rank that writes no file.
  ChromeTrace() = default;
  /// Opens the file and leaves its content unchanged.
  explicit ChromeTrace(const std::string& path);
  ~ChromeTrace();
  ChromeTrace(const ChromeTrace&) = delete;
  ChromeTrace& operator=(const ChromeTrace&) = delete;

  /// Begins a new trace. An old trace is deleted; but if `keeps_old` is true, it is first renamed
  /// (set_aside.h), and its new name is returned. `ranks`: null if there is one rank.
  std::optional<std::string> begin(const std::string& run_id, bool keeps_old = false,
                                   Ranks* ranks = nullptr);
  /// Adds the next step of this rank. It is drawn where the previous step of the slowest rank ends;
  /// time between steps is not drawn. Collective. REQUIRES: the trace has begun, and all steps have
  /// the same preparation.
  void add_step(const Preparation& prepared, std::span<const OpTime> times, uint64_t step,
                double step_s);

 private:
  std::optional<AppendFile> file_;
  Ranks* ranks_ = nullptr;
  std::vector<OpEvent> op_events_;  // [operation]
  bool has_begun_ = false;
  double begin_s_ = 0;
  uint64_t num_flows_ = 0;
};

/// Returns `trace` on rank 0. If that is not null, returns a trace without a file on the others,
/// and otherwise null. `ranks`: null if there is one rank. Collective. REQUIRES: other ranks than 0
/// pass null.
std::unique_ptr<ChromeTrace> trace_of_ranks(std::unique_ptr<ChromeTrace> trace, Ranks* ranks);

/// Whether a file is a trace of the run with this id.
bool is_trace_of(const std::string& path, const std::string& run_id);

}  // namespace ebb

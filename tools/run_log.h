// The log of a run (--log): one JSON line for each step, and a last line with the end of the run.
//
// Numbers have 17 significant digits, so reading them back gives the same bits; a number that is
// not finite is null. A field whose value is unknown is absent. Every line is written with
// its newline in one call. Every line has the id of its run, so that a resumed run continues only
// its own log.
//
// Not thread-safe. Errors: those of AppendFile; opening the log detects a full disk and a missing
// folder. Only begin() changes an existing file. It is called after everything else that can fail.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/append_file.h"

namespace ebb {

struct StepRecord {
  uint64_t step = 0;   ///< from 1
  uint64_t epoch = 0;  ///< from 0; the epoch of the step's first sample
  std::string run_id = {};
  bool emulates_compute = false;  ///< losses and norms are NaN and are not shown; not in the log
  double loss = 0;
  std::optional<double> grad_norm = {};        ///< before clipping
  std::optional<uint64_t> loss_scale = {};     ///< only for fp16, as the next field
  std::optional<uint64_t> skipped_steps = {};  ///< so far
  double learning_rate = 0;
  uint64_t tokens_seen = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;
  std::optional<double> tflops = {};
  std::optional<double> bound_seconds = {};
  std::optional<std::string> bound_by = {};
  std::optional<double> bound_share = {};
  std::optional<double> stall_seconds = {};
  std::optional<uint64_t> loaded_bytes = {};
  std::optional<uint64_t> stored_bytes = {};
  std::optional<uint64_t> device_peak_bytes = {};
  std::optional<uint64_t> host_bytes = {};
  // Only with speculative updates.
  std::optional<uint64_t> speculated_chunks = {};
  std::optional<uint64_t> rolled_back_chunks = {};
  std::optional<std::string> inexact = {};  ///< the flags of inexact modes; only with one
  std::optional<double> eval_loss = {};
  std::optional<double> best_eval_loss = {};  ///< only with --save-best or --early-stop
  std::optional<std::string> sample = {};     ///< the prompt and its continuation
};

struct EndRecord {
  uint64_t steps = 0;
  std::string run_id = {};
  uint64_t state_hash = 0;
  uint64_t peak_rss_bytes = 0;
  uint64_t parameters = 0;
};

/// One JSON object, without newline.
std::string to_json(const StepRecord& record);
std::string to_json(const EndRecord& record);

/// The run that continues a log: its id, and what its checkpoint says about its last step.
struct LoggedRun {
  std::string run_id;          ///< empty: the checkpoint has no id
  uint64_t step = 0;           ///< the last one; 0: the run starts
  uint64_t tokens_seen = 0;    ///< after that step
  std::string last_line = {};  ///< of the log; empty: unknown
  bool is_same_run = true;     ///< false: it continues from a copy of the checkpoint
};

/// Whose log a file is. `Ours`: lines have the run's id and no line has another id; or no line has
/// an id, and the line of the last step has the run's number of tokens.
enum class LogOwner : uint8_t { Nobody, Ours, Another };
/// `Nobody` if the file is missing, empty or no regular file.
LogOwner owner_of_log(const std::string& path, const LoggedRun& run);

class RunLog {
 public:
  /// Tests whether the disk has space for a line, and leaves the file unchanged.
  explicit RunLog(const std::string& path);

  /// Continues the log after the line of the run's last step and removes later lines. Adds the line
  /// of the last step if it is missing because its write failed. If no line would remain, or lines
  /// of another run or that are no steps would be lost, the old file is first renamed
  /// (set_aside.h). Returns notices for the user: the new name of the old file, and a step that has
  /// no line.
  std::vector<std::string> begin(const LoggedRun& run);

  // REQUIRES: the log has begun.
  void write(const StepRecord& record) { file_.append(to_json(record) + "\n"); }
  void write(const EndRecord& record) { file_.append(to_json(record) + "\n"); }
  /// False if the file was removed or renamed, so that nobody will find the lines.
  bool has_path() const { return file_.has_path(); }
  /// Syncs the file, so that its lines survive a power cut.
  void sync() { file_.sync(); }

 private:
  AppendFile file_;
};

}  // namespace ebb

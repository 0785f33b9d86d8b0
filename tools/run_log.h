// The log of a run (--log): one JSON line for each step, and a last line with the end of the run.
//
// Numbers have 17 significant digits, so reading them back gives the same bits; a number that is
// not finite is null. A field whose value is unknown is absent. Every line is written with
// its newline in one call.
//
// Not thread-safe. Errors: IoError; opening the log detects a full disk and a missing folder. Only
// begin() changes an existing file. It is called after everything else that can fail.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ebb {

struct StepRecord {
  uint64_t step = 0;              ///< from 1
  uint64_t epoch = 0;             ///< from 0; the epoch of the step's first sample
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
  std::optional<double> eval_loss = {};
};

struct EndRecord {
  uint64_t steps = 0;
  uint64_t state_hash = 0;
  uint64_t peak_rss_bytes = 0;
  uint64_t parameters = 0;
};

/// One JSON object, without newline.
std::string to_json(const StepRecord& record);
std::string to_json(const EndRecord& record);

class RunLog {
 public:
  /// Tests whether the disk has space for a line, and leaves the file unchanged.
  explicit RunLog(const std::string& path);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// Continues the log after the line of `last_step` (0: from the start) and removes later lines.
  /// If no line would remain, or lines of another run would be lost, the old file is first renamed
  /// (set_aside.h), and its new name is returned.
  std::optional<std::string> begin(uint64_t last_step, bool is_same_run = true);

  // REQUIRES: the log has begun.
  void write(const StepRecord& record) { write_line(to_json(record)); }
  void write(const EndRecord& record) { write_line(to_json(record)); }
  /// Syncs the file, so that its lines survive a power cut.
  void sync();

 private:
  void cut(uint64_t size_bytes);
  void probe();
  void write_all(std::string_view text);
  void write_line(std::string line);

  std::string path_;
  int descriptor_;
};

}  // namespace ebb

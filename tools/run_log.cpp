#include "tools/run_log.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "device/errors.h"
#include "io/json_text.h"
#include "tools/set_aside.h"

namespace ebb {
namespace {

// Size of the probe: the largest line of a log.
constexpr size_t kProbeBytes = 4096;

/// Builds one flat object; fields keep their order.
class JsonLine {
 public:
  JsonLine& add(std::string_view name, double value) {
    return raw(name, std::isfinite(value) ? fmt::format("{:.17g}", value) : "null");
  }
  JsonLine& add(std::string_view name, uint64_t value) { return raw(name, fmt::to_string(value)); }
  JsonLine& add(std::string_view name, bool value) { return raw(name, value ? "true" : "false"); }
  JsonLine& add(std::string_view name, const std::string& value) {
    return raw(name, json_text(nlohmann::json(value)));
  }
  template <class T>
  JsonLine& add(std::string_view name, const std::optional<T>& value) {
    return value ? add(name, *value) : *this;
  }
  std::string take() { return std::move(text_) + "}"; }

 private:
  JsonLine& raw(std::string_view name, std::string_view value) {
    fmt::format_to(std::back_inserter(text_), "{}\"{}\": {}", text_.size() > 1 ? ", " : "", name,
                   value);
    return *this;
  }
  std::string text_ = "{";
};

/// The line of a step; nullopt if it is another line.
struct StepLine {
  uint64_t step = 0;
  std::optional<uint64_t> tokens_seen;
  std::string run_id;  // empty: none
};
std::optional<StepLine> parse_line(const std::string& text) {
  const auto json = parse_json_or_discard(text);
  if (!json.is_object()) return std::nullopt;
  const auto number = [&json](const char* name) {
    const auto found = json.find(name);
    return found == json.end() ? std::nullopt : whole_number(*found);
  };
  const auto step = number("step");
  if (!step) return std::nullopt;
  const auto id = json.find("run_id");
  return StepLine{.step = *step,
                  .tokens_seen = number("tokens_seen"),
                  .run_id = id != json.end() && id->is_string() ? id->get<std::string>() : ""};
}

/// The part of a log that a run keeps: up to the last complete line of one of its steps.
struct KeptLines {
  uint64_t bytes = 0;
  uint64_t last_step = 0;
  std::optional<uint64_t> missing_step;  // the first one without line between two lines
  bool loses_notes = false;  // lines that are no steps, and not the end of a run, come later
};
KeptLines kept_lines(const std::string& path, uint64_t last_step) {
  std::ifstream file(path, std::ios::binary);
  KeptLines kept;
  uint64_t end = 0;
  for (std::string text; std::getline(file, text) && !file.eof();) {
    end += text.size() + 1;
    const auto line = parse_line(text);
    if (line && line->step > last_step) continue;
    if (!line) {
      const bool is_end = text.starts_with("{\"end\": true");
      kept.loses_notes = kept.loses_notes || !is_end;
      continue;
    }
    const bool has_gap = kept.last_step > 0 && line->step > kept.last_step + 1;
    if (has_gap && !kept.missing_step) kept.missing_step = kept.last_step + 1;
    kept = {end, line->step, kept.missing_step, false};
  }
  if (kept.last_step > 0 && kept.last_step < last_step && !kept.missing_step) {
    kept.missing_step = kept.last_step + 1;
  }
  return kept;
}

}  // namespace

std::string to_json(const StepRecord& r) {
  return JsonLine()
      .add("step", r.step)
      .add("epoch", r.epoch)
      .add("run_id", r.run_id)
      .add("loss", r.loss)
      .add("grad_norm", r.grad_norm)
      .add("loss_scale", r.loss_scale)
      .add("skipped_steps", r.skipped_steps)
      .add("learning_rate", r.learning_rate)
      .add("tokens_seen", r.tokens_seen)
      .add("step_seconds", r.step_seconds)
      .add("tokens_per_second", r.tokens_per_second)
      .add("tflops", r.tflops)
      .add("bound_seconds", r.bound_seconds)
      .add("bound_by", r.bound_by)
      .add("bound_share", r.bound_share)
      .add("stall_seconds", r.stall_seconds)
      .add("loaded_bytes", r.loaded_bytes)
      .add("stored_bytes", r.stored_bytes)
      .add("device_peak_bytes", r.device_peak_bytes)
      .add("host_bytes", r.host_bytes)
      .add("speculated_chunks", r.speculated_chunks)
      .add("rolled_back_chunks", r.rolled_back_chunks)
      .add("inexact", r.inexact)
      .add("eval_loss", r.eval_loss)
      .add("best_eval_loss", r.best_eval_loss)
      .add("sample", r.sample)
      .take();
}

std::string to_json(const EndRecord& r) {
  return JsonLine()
      .add("end", true)
      .add("steps", r.steps)
      .add("run_id", r.run_id)
      .add("state_hash", fmt::format("{:016x}", r.state_hash))
      .add("peak_rss_bytes", r.peak_rss_bytes)
      .add("parameters", r.parameters)
      .take();
}

LogOwner owner_of_log(const std::string& path, const LoggedRun& run) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return LogOwner::Nobody;
  if (std::filesystem::file_size(path, error) == 0) return LogOwner::Nobody;
  std::ifstream file(path, std::ios::binary);
  bool has_id = false, fits = false;
  for (std::string text; std::getline(file, text);) {
    const auto line = parse_line(text);
    if (!line) continue;
    if (!line->run_id.empty() && line->run_id != run.run_id) return LogOwner::Another;
    has_id = has_id || !line->run_id.empty();
    fits = fits || (line->step == run.step && line->tokens_seen == run.tokens_seen);
  }
  return has_id || fits ? LogOwner::Ours : LogOwner::Another;
}

RunLog::RunLog(const std::string& path) : file_(path, "log") { file_.probe(kProbeBytes); }

std::vector<std::string> RunLog::begin(const LoggedRun& run) {
  if (!file_.is_regular()) return {};
  const KeptLines kept = kept_lines(file_.path(), run.step);
  const bool loses_lines = kept.loses_notes || (!run.is_same_run && kept.bytes < file_.size());
  const auto aside = kept.bytes == 0 || loses_lines ? file_.set_aside() : std::nullopt;
  if (aside && kept.bytes > 0) {
    std::error_code error;
    using std::filesystem::copy_options;
    std::filesystem::copy_file(*aside, file_.path(), copy_options::overwrite_existing, error);
    if (error) throw IoError("cannot write log", file_.path(), error.value());
  }
  file_.cut(kept.bytes);
  std::vector<std::string> notices;
  if (aside) notices.push_back(renamed_text(file_.path(), *aside));
  const bool has_line = kept.last_step + 1 == run.step && !run.last_line.empty();
  if (has_line) file_.append(run.last_line + "\n");
  if (kept.missing_step && !(has_line && *kept.missing_step == run.step)) {
    notices.push_back(fmt::format("the log '{}' has no line of step {}, and perhaps of more",
                                  file_.path(), *kept.missing_step));
  }
  return notices;
}

}  // namespace ebb

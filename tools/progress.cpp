#include "tools/progress.h"

#include <fmt/format.h>

#include <iterator>

namespace ebb {
namespace {

constexpr const char* kClearLine = "\r\x1b[K";
// Weight of the newest step in the mean that predicts the time left.
constexpr double kNewest = 0.1;

}  // namespace

std::string format_duration(double seconds) {
  const auto whole = static_cast<uint64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

std::string format_step(const StepRecord& r, uint64_t num_steps, double seconds_left) {
  std::string line = fmt::format("step {}/{}", r.step, num_steps);
  const auto out = std::back_inserter(line);
  if (!r.rehearsal) {
    fmt::format_to(out, "  loss {:.4f}", r.loss);
    if (r.eval_loss) fmt::format_to(out, "  eval loss {:.4f}", *r.eval_loss);
    if (r.grad_norm) fmt::format_to(out, "  norm {:.3f}", *r.grad_norm);
  }
  if (r.loss_scale) fmt::format_to(out, "  scale {}", *r.loss_scale);
  if (r.skipped_steps.value_or(0) > 0) fmt::format_to(out, "  {} skipped", *r.skipped_steps);
  fmt::format_to(out, "  lr {:.2e}  {:.0f} tok/s", r.learning_rate, r.tokens_per_second);
  if (r.bound_share) fmt::format_to(out, "  {:.0f} % of bound", 100 * *r.bound_share);
  if (r.step < num_steps) fmt::format_to(out, "  {} left", format_duration(seconds_left));
  return line;
}

Progress::Progress(std::FILE* out, bool live, uint64_t num_steps, Seconds plain_interval)
    : out_(out), live_(live), num_steps_(num_steps), plain_interval_(plain_interval) {}

Progress::~Progress() { finish(); }

void Progress::finish() {
  const std::lock_guard lock(mutex_);
  if (!live_line_.empty()) std::fputc('\n', out_);
  live_line_.clear();
  std::fflush(out_);
}

void Progress::step(const StepRecord& record) {
  const std::lock_guard lock(mutex_);
  mean_step_s_ = mean_step_s_ == 0 ? record.step_seconds
                                   : (1 - kNewest) * mean_step_s_ + kNewest * record.step_seconds;
  const double left_s = mean_step_s_ * static_cast<double>(num_steps_ - record.step);
  if (live_) return show_live(format_step(record, num_steps_, left_s));
  if (!due(record)) return;
  fmt::print(out_, "{}\n", format_step(record, num_steps_, left_s));
  std::fflush(out_);
}

void Progress::notice(std::string_view text) {
  const std::lock_guard lock(mutex_);
  fmt::print(out_, "{}{}\n", live_ ? kClearLine : "", text);
  if (!live_line_.empty()) fmt::print(out_, "{}", live_line_);
  std::fflush(out_);
}

bool Progress::due(const StepRecord& record) {
  const auto now = std::chrono::steady_clock::now();
  const bool always = record.step == 1 || record.step == num_steps_ || record.eval_loss;
  if (!always && now - last_shown_ < plain_interval_) return false;
  last_shown_ = now;
  return true;
}

void Progress::show_live(const std::string& line) {
  live_line_ = line;
  fmt::print(out_, "{}{}", kClearLine, live_line_);
  std::fflush(out_);
}

}  // namespace ebb

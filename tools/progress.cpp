#include "tools/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <vector>

#include "tools/option_flags.h"
#include "tools/printable.h"

namespace ebb {
namespace {

constexpr const char* kClearLine = "\r\x1b[K";
// Weight of the newest step in the mean that predicts the time left.
constexpr double kNewest = 0.1;

/// A part of a line. If the line is too long, parts of the highest rank are removed first. Parts of
/// rank 0 stay.
struct Part {
  int rank = 0;
  std::string text;
};

constexpr std::string_view kGap = "  ";

std::string joined_in(std::vector<Part> parts, size_t width) {
  const auto length = [&parts] {
    size_t sum = 0;
    for (const Part& part : parts) sum += part.text.size() + kGap.size();
    return sum - kGap.size();
  };
  while (length() > width) {
    const auto last = std::ranges::max_element(parts, {}, &Part::rank);
    if (last->rank == 0) break;
    parts.erase(last);
  }
  std::string line;
  for (const Part& part : parts) {
    if (!line.empty()) line += kGap;
    line += part.text;
  }
  return line;
}

double stall_percent(const StepRecord& r) {
  return r.step_seconds > 0 ? 100 * *r.stall_seconds / r.step_seconds : 0;
}

/// The columns of the terminal, less one: some terminals wrap after the last column.
size_t columns_of(std::FILE* out) {
  winsize size{};
  const int descriptor = ::fileno(out);
  if (descriptor < 0 || ::ioctl(descriptor, TIOCGWINSZ, &size) != 0) return kAnyWidth;
  return size.ws_col > 1 ? size.ws_col - size_t{1} : kAnyWidth;
}

}  // namespace

std::string format_duration(double seconds) {
  const auto whole = static_cast<uint64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

std::string format_step(const StepRecord& r, uint64_t num_steps, double seconds_left,
                        size_t width) {
  std::vector<Part> parts;
  const auto add = [&parts](int rank, std::string text) {
    parts.push_back({rank, std::move(text)});
  };
  add(0, fmt::format("step {}/{}", r.step, num_steps));
  if (!r.emulates_compute) {
    add(1, fmt::format("loss {:.4f}", r.loss));
    if (r.eval_loss) add(1, fmt::format("eval loss {:.4f}", *r.eval_loss));
    if (r.grad_norm) add(6, fmt::format("norm {:.3f}", *r.grad_norm));
  }
  if (r.loss_scale) add(7, fmt::format("scale {}", *r.loss_scale));
  if (r.skipped_steps.value_or(0) > 0) add(6, fmt::format("{} skipped", *r.skipped_steps));
  add(7, fmt::format("lr {:.2e}", r.learning_rate));
  add(3, fmt::format("{:.0f} tok/s", r.tokens_per_second));
  if (r.bound_share) add(4, fmt::format("{:.0f} % of bound", 100 * *r.bound_share));
  if (r.stall_seconds) add(5, fmt::format("stall {:.0f} %", stall_percent(r)));
  if (r.step < num_steps) add(2, fmt::format("{} left", format_duration(seconds_left)));
  return joined_in(std::move(parts), width);
}

RunProgress::RunProgress(std::FILE* out, bool live, uint64_t num_steps, Seconds plain_interval)
    : out_(out), live_(live), num_steps_(num_steps), plain_interval_(plain_interval) {}

RunProgress::~RunProgress() { finish(); }

void RunProgress::finish() {
  const std::lock_guard lock(mutex_);
  if (!live_line_.empty()) std::fputc('\n', out_);
  live_line_.clear();
  std::fflush(out_);
}

void RunProgress::step(const StepRecord& record) {
  const std::lock_guard lock(mutex_);
  mean_step_s_ = mean_step_s_ == 0 ? record.step_seconds
                                   : (1 - kNewest) * mean_step_s_ + kNewest * record.step_seconds;
  const double left_s = mean_step_s_ * static_cast<double>(num_steps_ - record.step);
  if (live_) return show_live(format_step(record, num_steps_, left_s, columns_of(out_)));
  if (!due(record)) return;
  print(format_step(record, num_steps_, left_s) + "\n");
}

void RunProgress::notice(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (keeps_notices_) notices_.emplace_back(text);
  print(fmt::format("{}{}\n{}", live_ ? kClearLine : "", with_flags(printable(text)), live_line_));
}

void RunProgress::keep_notices() {
  const std::lock_guard lock(mutex_);
  keeps_notices_ = true;
}

std::vector<std::string> RunProgress::take_notices() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notices_, {});
}

bool RunProgress::due(const StepRecord& record) {
  const auto now = std::chrono::steady_clock::now();
  const bool always = record.step == 1 || record.step == num_steps_ || record.eval_loss;
  if (!always && now - last_shown_ < plain_interval_) return false;
  last_shown_ = now;
  return true;
}

void RunProgress::show_live(const std::string& line) {
  live_line_ = line;
  print(kClearLine + live_line_);
}

void RunProgress::print(std::string_view text) {
  (void)std::fwrite(text.data(), 1, text.size(), out_);
  (void)std::fflush(out_);
}

}  // namespace ebb

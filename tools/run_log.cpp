#include "tools/run_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
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

/// Is this the line of a step up to `last_step`?
bool is_until(const std::string& line, uint64_t last_step) {
  const auto json = parse_json_or_discard(line);
  if (!json.is_object()) return false;
  const auto step = json.find("step");
  return step != json.end() && step->is_number_unsigned() && *step <= last_step;
}

int open_log(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) throw IoError("cannot open log", path, errno);
  return descriptor;
}

struct stat status_of(int descriptor, const std::string& path) {
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0) throw IoError("cannot read state of log", path, errno);
  return status;
}

/// The bytes of the complete lines at the beginning that belong to these steps.
uint64_t bytes_until(const std::string& path, uint64_t last_step) {
  std::ifstream file(path, std::ios::binary);
  uint64_t bytes = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    if (!is_until(line, last_step)) break;
    bytes += line.size() + 1;
  }
  return bytes;
}

}  // namespace

std::string to_json(const StepRecord& r) {
  return JsonLine()
      .add("step", r.step)
      .add("epoch", r.epoch)
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
      .add("eval_loss", r.eval_loss)
      .take();
}

std::string to_json(const EndRecord& r) {
  return JsonLine()
      .add("end", true)
      .add("steps", r.steps)
      .add("state_hash", fmt::format("{:016x}", r.state_hash))
      .add("peak_rss_bytes", r.peak_rss_bytes)
      .add("parameters", r.parameters)
      .take();
}

RunLog::RunLog(const std::string& path) : path_(path), descriptor_(open_log(path)) {
  try {
    probe();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

RunLog::~RunLog() { ::close(descriptor_); }

std::optional<std::string> RunLog::begin(uint64_t last_step, bool is_same_run) {
  const struct stat status = status_of(descriptor_, path_);
  if (!S_ISREG(status.st_mode)) return std::nullopt;
  const uint64_t kept_bytes = bytes_until(path_, last_step);
  const bool are_anothers = !is_same_run && kept_bytes < static_cast<uint64_t>(status.st_size);
  const auto aside = kept_bytes == 0 || are_anothers ? set_aside(path_) : std::nullopt;
  if (aside) {
    ::close(descriptor_);
    descriptor_ = open_log(path_);
    std::error_code error;
    using std::filesystem::copy_options;
    if (kept_bytes > 0) {
      std::filesystem::copy_file(*aside, path_, copy_options::overwrite_existing, error);
    }
    if (error) throw IoError("cannot write log", path_, error.value());
  }
  cut(kept_bytes);
  return aside;
}

void RunLog::cut(uint64_t size_bytes) {
  const auto end = static_cast<off_t>(size_bytes);
  if (::ftruncate(descriptor_, end) == 0 && ::lseek(descriptor_, end, SEEK_SET) == end) return;
  throw IoError("cannot write log", path_, errno);
}

/// For a regular file, a line is appended and cut off again. For other files, an empty write is the
/// only test.
void RunLog::probe() {
  const struct stat status = status_of(descriptor_, path_);
  if (!S_ISREG(status.st_mode)) {
    if (::write(descriptor_, "", 0) < 0) throw IoError("cannot write log", path_, errno);
    return;
  }
  const auto size_bytes = static_cast<uint64_t>(status.st_size);
  cut(size_bytes);
  try {
    write_all(std::string(kProbeBytes, ' '));
  } catch (...) {
    cut(size_bytes);
    throw;
  }
  cut(size_bytes);
}

void RunLog::sync() {
  if (::fsync(descriptor_) != 0 && errno != EINVAL && errno != EROFS) {
    throw IoError("cannot sync log", path_, errno);
  }
}

void RunLog::write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw IoError("cannot write log", path_, errno);
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void RunLog::write_line(std::string line) {
  line += '\n';
  write_all(line);
}

}  // namespace ebb

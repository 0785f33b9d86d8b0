#include "tools/message_reader.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "device/errors.h"
#include "tools/cli.h"

namespace ebb {
namespace {

constexpr int kStopInterval = 100;  // ms

}  // namespace

MessageReader::MessageReader(std::function<bool()> stop)
    : stop_(std::move(stop)), is_terminal_(::isatty(STDIN_FILENO) != 0) {}

std::optional<std::string> MessageReader::next() {
  if (!is_terminal_) {
    while (read()) {
    }
    if (stop_()) return std::nullopt;
    std::string all = std::exchange(text_, {});
    while (all.ends_with('\n') || all.ends_with('\r')) all.pop_back();
    if (all.empty() || stop_()) return std::nullopt;
    return all;
  }
  say("> ");
  for (;;) {
    const size_t end = text_.find('\n');
    if (end == text_.npos) {
      if (!read()) return std::nullopt;
      continue;
    }
    std::string line = text_.substr(0, end);
    text_.erase(0, end + 1);
    if (!line.empty()) return line;
    say("> ");
  }
}

bool MessageReader::read() {
  for (;;) {
    if (stop_()) return false;
    pollfd waiting = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, kStopInterval) <= 0) continue;
    std::array<char, 1 << 16> bytes;
    const ssize_t count = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw IoError("cannot read", "standard input", errno);
    text_.append(bytes.data(), static_cast<size_t>(count));
    return count > 0;
  }
}

}  // namespace ebb

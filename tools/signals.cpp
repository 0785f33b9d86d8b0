#include "tools/signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "device/errors.h"

namespace ebb {
namespace {

struct Watched {
  int signal;
  const char* name;
};
constexpr Watched kWatched[] = {{SIGINT, "Ctrl-C"},
                                {SIGTERM, "SIGTERM"},
                                {SIGHUP, "SIGHUP"},
                                {SIGUSR1, "SIGUSR1"},
                                {SIGUSR2, "SIGUSR2"}};

/// Is the signal ignored? Then it must not be blocked, because the signalfd would receive it.
bool is_ignored(int signal) {
  struct sigaction action = {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

/// Ends the process in the way of the signal's default action, so that a shell sees the cause.
void die_of(int signal, const sigset_t& watched) {
  ::signal(signal, SIG_DFL);
  ::pthread_sigmask(SIG_UNBLOCK, &watched, nullptr);
  ::raise(signal);
}

}  // namespace

Signals::Signals(std::function<void(const char* name)> on_first, std::chrono::milliseconds grace,
                 std::function<bool()> ends_at_once)
    : on_first_(std::move(on_first)), ends_at_once_(std::move(ends_at_once)), grace_(grace) {
  ::sigemptyset(&watched_);
  for (const Watched& w : kWatched) {
    if (w.signal != SIGHUP || !is_ignored(SIGHUP)) ::sigaddset(&watched_, w.signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &watched_, &before_);
  signals_ = ::signalfd(-1, &watched_, SFD_CLOEXEC);
  stop_ = ::eventfd(0, EFD_CLOEXEC);
  if (signals_ < 0 || stop_ < 0) throw IoError("cannot watch signals", "signalfd", errno);
  thread_ = std::thread([this] { wait_for_signals(); });
}

Signals::~Signals() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_, &one, sizeof one);
  thread_.join();
  ::close(signals_);
  ::close(stop_);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Signals::wait_for_signals() {
  for (;;) {
    pollfd polled[2] = {{signals_, POLLIN, 0}, {stop_, POLLIN, 0}};
    if (::poll(polled, 2, -1) < 0 && errno != EINTR) return;
    if (polled[1].revents != 0) return;
    signalfd_siginfo info = {};
    if (polled[0].revents == 0 || ::read(signals_, &info, sizeof info) != sizeof info) continue;
    take(static_cast<int>(info.ssi_signo));
  }
}

void Signals::take(int signal) {
  const auto now = std::chrono::steady_clock::now();
  if (pending() != 0) {
    if (now - first_time_ >= grace_) die_of(signal, watched_);
    return;
  }
  if (ends_at_once_ && ends_at_once_()) die_of(signal, watched_);
  first_time_ = now;
  pending_.store(signal, std::memory_order_relaxed);
  on_first_(std::ranges::find(kWatched, signal, &Watched::signal)->name);
}

}  // namespace ebb

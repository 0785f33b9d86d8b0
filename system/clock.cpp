#include "system/clock.h"

#include <time.h>

#include <cerrno>
#include <cmath>

namespace ebb {
namespace {

double seconds_on(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

double steady_now_s() { return seconds_on(CLOCK_MONOTONIC); }

double thread_cpu_s() { return seconds_on(CLOCK_THREAD_CPUTIME_ID); }

double process_cpu_s() { return seconds_on(CLOCK_PROCESS_CPUTIME_ID); }

void sleep_until(double deadline_s) {
  // On a virtual machine a timer costs 18 us of processor time, even if the deadline has passed.
  if (steady_now_s() >= deadline_s) return;
  const double whole = std::floor(deadline_s);
  const timespec until{static_cast<time_t>(whole), static_cast<long>((deadline_s - whole) * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

}  // namespace ebb

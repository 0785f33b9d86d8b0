// The clock of this process: seconds that never go back, and sleeping until a time on it.
//
// Names that end with `_s` (but not `_per_s`) mean seconds: a duration, or a time on this clock if
// no comment names another clock or start.
// Thread-safety: every function may be called from any thread.
#pragma once

namespace ebb {

/// Seconds on CLOCK_MONOTONIC.
double steady_now_s();

/// Sleeps until the clock shows `deadline_s`. Returns at once where that time has passed.
void sleep_until(double deadline_s);

/// Seconds of processor time that the calling thread has used.
double thread_cpu_s();

/// Seconds of processor time that all threads of this process have used.
double process_cpu_s();

}  // namespace ebb

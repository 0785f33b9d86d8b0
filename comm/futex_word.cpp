#include "comm/futex_word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <cmath>

namespace ebb {

// Without FUTEX_PRIVATE_FLAG the kernel finds waiters in other processes, too.

void FutexWord::raise(uint32_t value) {
  value_.store(value, std::memory_order_release);
  syscall(SYS_futex, &value_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void FutexWord::sleep(uint32_t seen, double limit_s) const {
  const double whole = std::floor(limit_s);
  const timespec limit{static_cast<time_t>(whole), static_cast<long>((limit_s - whole) * 1e9)};
  syscall(SYS_futex, &value_, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

}  // namespace ebb

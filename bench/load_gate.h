// Sees whether other processes used the cores during its life: busy time in /proc/stat less our
// own. Benchmarks throw away samples that were not quiet.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>

namespace ebb::bench {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class LoadGate {
 public:
  /// Cores that others kept busy, on average.
  double other_cores() const {
    return ((busy_s() - busy_s_) - (own_s() - own_s_)) / seconds_since(start_);
  }
  bool quiet() const { return other_cores() < 0.04; }

 private:
  static double busy_s() {
    std::array<long long, 8> t{};  // user nice system idle iowait irq softirq steal
    FILE* const file = std::fopen("/proc/stat", "r");
    if (!file) return 0;
    const int read = std::fscanf(file, "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &t[0], &t[1],
                                 &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]);
    std::fclose(file);
    if (read != 8) return 0;
    const long long ticks = t[0] + t[1] + t[2] + t[5] + t[6] + t[7];
    return static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  static double own_s() {
    rusage use{};
    getrusage(RUSAGE_SELF, &use);
    return static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
  }

  Clock::time_point start_ = Clock::now();
  double busy_s_ = busy_s();
  double own_s_ = own_s();
};

}  // namespace ebb::bench

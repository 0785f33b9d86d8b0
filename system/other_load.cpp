#include "system/other_load.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "system/clock.h"

namespace ebb {
namespace {

/// The time in which all cores together were busy since the system started; 0 if it is unknown.
double busy_seconds() {
  std::ifstream file("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0;
  if (!(file >> name >> user >> nice >> system) || name != "cpu") return 0;
  return (user + nice + system) / static_cast<double>(std::max(1L, ::sysconf(_SC_CLK_TCK)));
}

}  // namespace

OtherLoad::OtherLoad()
    : busy_s_(busy_seconds()), own_s_(process_cpu_s()), start_s_(steady_now_s()) {}

double OtherLoad::share() const {
  const double cores_s = (steady_now_s() - start_s_) *
                         static_cast<double>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  const double others_s = busy_seconds() - busy_s_ - (process_cpu_s() - own_s_);
  return cores_s > 0 ? std::clamp(others_s / cores_s, 0.0, 1.0) : 0;
}

}  // namespace ebb

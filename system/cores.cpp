#include "system/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>

#include "system/cgroup.h"

namespace ebb {

namespace {

/// An affinity mask with room for `size` cores.
class Mask {
 public:
  explicit Mask(size_t size) : set_(CPU_ALLOC(size)), bytes_(CPU_ALLOC_SIZE(size)) {
    CPU_ZERO_S(bytes_, set_);
  }
  ~Mask() { CPU_FREE(set_); }
  Mask(const Mask&) = delete;
  Mask& operator=(const Mask&) = delete;

  /// False if the kernel needs a larger mask.
  bool read() { return sched_getaffinity(0, bytes_, set_) == 0; }
  void bind() const { sched_setaffinity(0, bytes_, set_); }
  int count() const { return CPU_COUNT_S(bytes_, set_); }
  bool has(size_t core) const { return CPU_ISSET_S(core, bytes_, set_); }
  void add(size_t core) { CPU_SET_S(core, bytes_, set_); }

 private:
  cpu_set_t* const set_;
  const size_t bytes_;
};

int num_cores_in_mask() {
  for (size_t size = CPU_SETSIZE; size <= (1 << 20); size *= 2) {
    if (Mask mask(size); mask.read()) return mask.count();
  }
  return 1;
}

}  // namespace

int num_usable_cores() {
  double cores = num_cores_in_mask();
  for (const Cgroup& cgroup : own_cgroups("cpu")) {
    cores = std::min(cores, std::ceil(cpu_quota(cgroup).value_or(cores)));
  }
  return std::max(1, static_cast<int>(cores));
}

CoreSet cores_of_process() {
  CoreSet cores;
  Mask mask(cores.size());
  if (!mask.read()) return cores;
  for (size_t core = 0; core < cores.size(); ++core) cores[core] = mask.has(core);
  return cores;
}

void bind_process(const CoreSet& cores) {
  Mask mask(cores.size());
  for (size_t core = 0; core < cores.size(); ++core) {
    if (cores[core]) mask.add(core);
  }
  mask.bind();
}

}  // namespace ebb

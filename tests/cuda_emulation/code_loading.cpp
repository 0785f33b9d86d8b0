#include "tests/cuda_emulation/code_loading.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <vector>

#include "device/errors.h"
#include "system/tsan.h"

namespace ebb::emulation {
namespace {

/// Global, because CUDA's interface has no object for the state.
struct State {
  std::mutex mutex;
  std::vector<AwaitedWord> awaited;
  std::set<const void*> kernels;  // loaded
};

State& state() {
  static State one;
  return one;
}

void check_nobody_waits(const State& s) {
  EBB_CHECK(std::ranges::all_of(s.awaited, &AwaitedWord::is_written),
            "code is loaded while a stream waits for a host thread");
}

}  // namespace

void begin_wait(const AwaitedWord& awaited) {
  TsanHiddenLock lock(state().mutex);
  state().awaited.push_back(awaited);
}

void end_wait(const AwaitedWord& awaited) {
  TsanHiddenLock lock(state().mutex);
  state().awaited.erase(std::ranges::find(state().awaited, awaited));
}

void load_code() {
  TsanHiddenLock lock(state().mutex);
  check_nobody_waits(state());
}

void load_kernel(const void* kernel) {
  TsanHiddenLock lock(state().mutex);
  if (state().kernels.insert(kernel).second) check_nobody_waits(state());
}

void unload_code() {
  TsanHiddenLock lock(state().mutex);
  state().kernels.clear();
  state().awaited.clear();
}

}  // namespace ebb::emulation

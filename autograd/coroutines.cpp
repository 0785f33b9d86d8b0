#include "autograd/coroutines.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "device/errors.h"

namespace ebb {

Coroutines::Coroutines(uint32_t most) {
  try {
    for (uint32_t i = 0; i < most; ++i) fibers_.push_back(std::make_unique<Fiber>());
  } catch (const std::system_error& error) {
    throw ConfigError(fmt::format(
        "cannot allocate stack {} of {}, one for each micro-batch of a step: {}; "
        "allow more addresses (ulimit -v) or mappings (sysctl vm.max_map_count), make fewer and "
        "larger micro-batches, or choose the horizontal order of micro-batches",
        fibers_.size() + 1, most, error.code().message()));
  }
}

void Coroutines::run_erased(uint32_t count, const void* body, Call call) {
  EBB_CHECK(count <= fibers_.size(), "more functions than stacks");
  for (uint32_t i = 0; i < count; ++i) {
    fibers_[i]->start([this, body, call, i] { run_body(body, call, i); });
  }
  for (bool any = true; any;) {
    any = false;
    for (uint32_t i = 0; i < count; ++i) {
      if (!fibers_[i]->has_ended()) fibers_[i]->resume();
      any |= !fibers_[i]->has_ended();
    }
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Coroutines::run_body(const void* body, Call call, uint32_t i) {
  if (error_) return;
  try {
    call(body, i);
  } catch (const Cancelled&) {
  } catch (...) {
    if (!error_) error_ = std::current_exception();
  }
}

void Coroutines::yield(uint32_t i) {
  fibers_[i]->suspend();
  if (error_) throw Cancelled{};
}

}  // namespace ebb

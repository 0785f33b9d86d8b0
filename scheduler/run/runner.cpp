#include "scheduler/run/runner.h"

#include <exception>

namespace ebb {

Runner::Runner(Device& device, Stream& compute, const Layout& layout, DeviceSpaces& spaces,
               const Home& home, RunBuffers& buffers, ChunkWork& work, uint32_t max_ops,
               Ranks* ranks)
    : compute_(compute),
      buffers_(buffers),
      work_(work),
      executor_(device, compute, layout, spaces, home, work, max_ops, ranks) {}

ExecutorStats Runner::run(const Trace& trace, const Plan& plan, Program program,
                          bool blocks_submitting_thread) {
  try {
    executor_.begin(trace, plan, blocks_submitting_thread);
    program();
    return executor_.finish();
  } catch (const std::exception& error) {
    work_.stopped(error.what());
    if (const std::exception_ptr bad_data = executor_.cancel()) std::rethrow_exception(bad_data);
    throw;
  }
}

ExecutorStats Runner::run(const Plan& plan) {
  return run(no_calls_, plan, [] {});
}

}  // namespace ebb

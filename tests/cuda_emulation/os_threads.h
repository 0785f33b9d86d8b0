// The OS threads that run the blocks of kernels. There are as many as a small machine has cores.
#pragma once

#include <cstdint>
#include <functional>

namespace ebb::emulation {

/// Calls run(i) once for each i in [0, count) on these threads, and returns when all calls are
/// done. Calls start in ascending order of i. After the first exception no further call starts, and
/// deal() rethrows the exception. Denormals are flushed to zero in the calls. Any other thread may
/// call deal().
void deal(int64_t count, const std::function<void(int64_t)>& run);

}  // namespace ebb::emulation

// The OS threads that blocks of kernels are dealt to: as many as a small machine has cores.
#pragma once

#include <cstdint>
#include <functional>

namespace ebb::emulation {

/// Calls run(i) once for each i in [0, count) on those threads, and returns when all are done;
/// indices are taken in ascending order. Rethrows the first exception, after which no further
/// index is begun. Denormals are flushed to zero inside. Any other thread may call it.
void deal(int64_t count, const std::function<void(int64_t)>& run);

}  // namespace ebb::emulation

// The OS threads that blocks of kernels are dealt to, beside the one that launches.
#pragma once

#include <cstdint>
#include <functional>

namespace ebb::emulation {

/// Calls run(i) once for each i in [0, count), on this thread and on others, and returns when all
/// are done; indices are taken in ascending order. Rethrows the first exception, after which no
/// further index is begun. Denormals are flushed to zero inside. Any thread may call it.
void deal(int64_t count, const std::function<void(int64_t)>& run);

}  // namespace ebb::emulation

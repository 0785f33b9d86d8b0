// A stream to which kernels can be submitted: the interface of the CUDA backend's streams to
// CudaKernels.
//
// Launches follow the rules of Stream: they run in submission order, the first error stays on the
// stream, and operations after the error are dropped.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "device/inline_function.h"
#include "device/stream.h"

namespace ebb {

/// Launches one or more kernels on the given CUDA stream, in the submitting thread. Throws
/// DeviceError if CUDA refuses one.
using KernelLaunch = InlineFunction<void(cudaStream_t), 16>;

/// The bound for kernels that do not have one of their own (most_kernels() in
/// cuda/cuda_kernels.cpp), also for kernels of a program (device/own_kernel.h).
inline constexpr uint64_t kUsualKernels = 16;

class KernelStream : public Stream {
 public:
  /// Calls `launch` in this thread, after waiting for room in the queue. `launch` starts at
  /// most `most_kernels` kernels, copies and fills. `cost` is counted as in Stream::submit().
  virtual void launch(const Cost& cost, KernelLaunch launch,
                      uint64_t most_kernels = kUsualKernels) = 0;
};

}  // namespace ebb

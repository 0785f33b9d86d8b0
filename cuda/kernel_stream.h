// A stream that kernels can be put on: what CudaKernels asks of the CUDA backend's streams.
//
// Everything else that a Stream promises holds for launches, too: they run in submission order, the
// first error stays on the stream, and what comes after it is dropped.
#pragma once

#include <cuda_runtime_api.h>

#include "device/inline_function.h"
#include "device/stream.h"

namespace ebb {

/// Puts one or more kernels on the native stream it is given, on the submitting thread; throws
/// DeviceError where CUDA refuses one.
using KernelLaunch = InlineFunction<void(cudaStream_t), 320>;

class KernelStream : public Stream {
 public:
  /// Calls `launch` now. `cost` is counted as that of Stream::submit() is.
  virtual void launch(const Cost& cost, KernelLaunch launch) = 0;
};

}  // namespace ebb

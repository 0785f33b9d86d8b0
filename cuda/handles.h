// Owners of CUDA's streams and events.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

#include "cuda/cuda_error.h"

namespace ebb {

struct DestroyStream {
  void operator()(cudaStream_t stream) const noexcept { (void)cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const noexcept { (void)cudaEventDestroy(event); }
};
using OwnedStream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;
using OwnedEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;

/// Makes a stream on the current device that is ordered only by events. Throws DeviceError.
inline OwnedStream make_stream(int priority = 0) {
  cudaStream_t stream = nullptr;
  EBB_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
           "making a stream");
  return OwnedStream(stream);
}

/// cudaEventQuery(). CUDA stores the status, also "not ready", as this thread's last error, and the
/// check after the next launch would report it. So this function clears the last error.
inline cudaError_t query(cudaEvent_t event) noexcept {
  const cudaError_t status = cudaEventQuery(event);
  if (status != cudaSuccess) (void)cudaGetLastError();
  return status;
}

/// Makes an event on the current device. `flags`: cudaEventBlockingSync only for the few events for
/// which a thread sleeps (in_flight.h). Throws DeviceError.
inline OwnedEvent make_event(unsigned int flags = cudaEventDefault) {
  cudaEvent_t event = nullptr;
  EBB_CUDA(cudaEventCreateWithFlags(&event, flags), "making an event");
  return OwnedEvent(event);
}

}  // namespace ebb

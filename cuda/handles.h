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

/// On the current device; ordered by nothing but events. Throws DeviceError.
inline OwnedStream make_stream(int priority = 0) {
  cudaStream_t stream = nullptr;
  EBB_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
           "making a stream");
  return OwnedStream(stream);
}

/// cudaEventQuery(). CUDA keeps what that returns, "not ready" included, for whoever asks this
/// thread for its last error next, and that is the next launch: so it is taken back here.
inline cudaError_t query(cudaEvent_t event) noexcept {
  const cudaError_t status = cudaEventQuery(event);
  if (status != cudaSuccess) (void)cudaGetLastError();
  return status;
}

/// `flags`: cudaEventBlockingSync where host threads wait for it. Throws DeviceError.
inline OwnedEvent make_event(unsigned int flags = cudaEventDefault) {
  cudaEvent_t event = nullptr;
  EBB_CUDA(cudaEventCreateWithFlags(&event, flags), "making an event");
  return OwnedEvent(event);
}

}  // namespace ebb

// The queue behind an emulated stream: what emulated launches and library calls are put into.
//
// A stream is a thread. What is enqueued runs there in order, after what was submitted to the
// stream before; ordering between streams comes from events alone, and ThreadSanitizer sees no
// other. A closure that throws is what a fault on a GPU is: the device is lost, every later call
// returns cudaErrorLaunchFailure, and last_failure() has the exception's text. Thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <string_view>

namespace ebb::emulation {

/// Throws LogicError where `stream` is not a stream: there is no default stream here.
void enqueue(cudaStream_t stream, std::function<void()> work);

/// Whether the calling thread has made the stream's device its own, as launches ask for.
bool is_on_current_device(cudaStream_t stream);
/// Whether a test wants this call to fail.
bool is_refused(std::string_view call);

/// Makes `error` what cudaGetLastError() returns next on this thread, and returns it.
cudaError_t set_last_error(cudaError_t error);

/// What a closure threw since the last reset_device(); empty where none did.
std::string last_failure();

/// Whether [memory, memory + bytes) is memory that a kernel may touch: allocated on the device, a
/// mapped block, or registered host memory.
bool device_may_touch(const void* memory, size_t bytes);

/// Forgets a lost device, as a new process would. REQUIRES: no streams exist.
void reset_device();

}  // namespace ebb::emulation

// The queue of an emulated stream. Emulated launches and library calls are submitted to it.
//
// A stream is a thread that runs its work in submission order. Only events order different streams,
// and ThreadSanitizer sees no other order. A closure that throws emulates a fault on the GPU: the
// device is lost, every later call returns cudaErrorLaunchFailure, and last_failure() returns the
// text of the exception. Thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <string_view>

namespace ebb::emulation {

/// Submits work to a stream. Throws LogicError if `stream` is not a stream; there is no default
/// stream.
void enqueue(cudaStream_t stream, std::function<void()> work);

/// Is the stream's device current in the calling thread? Launches need this.
bool is_on_current_device(cudaStream_t stream);
/// Does the test want this call to fail?
bool is_refused(std::string_view call);

/// Sets this thread's last error, which cudaGetLastError() returns next. Returns `error`.
cudaError_t set_last_error(cudaError_t error);

/// The text of the exception that a closure threw since the last reset_device(), or empty.
std::string last_failure();

/// May a kernel access [memory, memory + bytes)? It may if this is allocated device memory, a
/// mapped block, or registered host memory.
bool device_may_touch(const void* memory, size_t bytes);

/// Makes a lost device usable again, like a new process. REQUIRES: no streams exist.
void reset_device();

}  // namespace ebb::emulation

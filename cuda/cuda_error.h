// Converts CUDA's status codes to exceptions that name the call, the purpose of the call and a
// remedy.
//
// EBB_CUDA(call, asked) throws DeviceError if `call` does not return cudaSuccess. `asked` is the
// purpose, as an expression that converts to std::string ("a copy of 64 MiB"); it is evaluated only
// on an error. Callers that know the budget check for out of memory themselves and throw
// OutOfMemory. Thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

namespace ebb {

/// Throws DeviceError. `call`, `file` and `line`: text and position of the call in the source.
[[noreturn]] void throw_cuda_error(cudaError_t status, std::string_view call, std::string asked,
                                   const char* file, int line);

}  // namespace ebb

#define EBB_CUDA(call, asked)                                                       \
  do {                                                                              \
    if (const cudaError_t ebb_cuda_status = (call); ebb_cuda_status != cudaSuccess) \
      ::ebb::throw_cuda_error(ebb_cuda_status, #call, asked, __FILE__, __LINE__);   \
  } while (0)

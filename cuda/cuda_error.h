// What CUDA's status codes become: exceptions that name the call, what was asked and what to try.
//
// EBB_CUDA(call, asked): throws where `call` does not return cudaSuccess. `asked` is anything that
// becomes a std::string ("a copy of 64 MiB"); it is evaluated only then. Out of memory becomes
// OutOfMemory where the caller knows the budget; everything else is a DeviceError. Thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

namespace ebb {

/// `call`, `file` and `line` are the source's.
[[noreturn]] void throw_cuda_error(cudaError_t status, std::string_view call, std::string asked,
                                   const char* file, int line);

}  // namespace ebb

#define EBB_CUDA(call, asked)                                                       \
  do {                                                                              \
    if (const cudaError_t ebb_cuda_status = (call); ebb_cuda_status != cudaSuccess) \
      ::ebb::throw_cuda_error(ebb_cuda_status, #call, asked, __FILE__, __LINE__);   \
  } while (0)

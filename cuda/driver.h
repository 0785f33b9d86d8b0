// The functions of libcuda that the CUDA runtime does not have. They are looked up at run time, so
// that one binary runs with and without a driver. Immutable after load_driver(); thread-safe.
#pragma once

#include <cuda.h>

#include <string>

namespace ebb {

struct Driver {
  CUresult (*device_get)(CUdevice*, int index);
  CUresult (*device_get_attribute)(int*, CUdevice_attribute, CUdevice);
  CUresult (*mem_address_reserve)(CUdeviceptr*, size_t bytes, size_t alignment, CUdeviceptr wanted,
                                  unsigned long long flags);
  CUresult (*mem_address_free)(CUdeviceptr, size_t bytes);
  CUresult (*mem_create)(CUmemGenericAllocationHandle*, size_t bytes, const CUmemAllocationProp*,
                         unsigned long long flags);
  CUresult (*mem_release)(CUmemGenericAllocationHandle);
  CUresult (*mem_map)(CUdeviceptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle,
                      unsigned long long flags);
  CUresult (*mem_unmap)(CUdeviceptr, size_t bytes);
  CUresult (*mem_set_access)(CUdeviceptr, size_t bytes, const CUmemAccessDesc*, size_t count);
  CUresult (*mem_get_allocation_granularity)(size_t*, const CUmemAllocationProp*,
                                             CUmemAllocationGranularity_flags);
  CUresult (*stream_wait_value32)(CUstream, CUdeviceptr, cuuint32_t value, unsigned int flags);
  CUresult (*get_error_name)(CUresult, const char**);
};

/// Looks up all functions. Throws ConfigError if one is missing: the driver is too old.
Driver load_driver();

/// Throws DeviceError with the name of `status`, the purpose of the call (`asked`), the name of the
/// function (`call`) and `advice`.
[[noreturn]] void throw_driver_error(const Driver& driver, CUresult status, const char* call,
                                     const std::string& asked, const std::string& advice);

}  // namespace ebb

#include "cuda/driver.h"

#include "cuda/cuda_error.h"
#include "device/errors.h"

namespace ebb {
namespace {

constexpr unsigned int kOldestInterface =
    12000;  // the functions have their present meaning since CUDA 12.0

/// Returns a pointer to the function `name` of libcuda.
void* find(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &function, kOldestInterface,
                                                              cudaEnableDefault, &found);
#else
  const cudaError_t status = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
  if (status == cudaSuccess && found == cudaDriverEntryPointSuccess) return function;
  int version = 0;
  (void)cudaDriverGetVersion(&version);
  (void)cudaGetLastError();
  throw ConfigError(std::string("the CUDA driver (") + std::to_string(version / 1000) + "." +
                    std::to_string(version % 1000 / 10) + ") has no " + name +
                    "; Ebb needs a driver for CUDA 12.4 or later, or `device` host");
}

template <class Function>
void load(Function& function, const char* name) {
  function = reinterpret_cast<Function>(find(name));
}

}  // namespace

Driver load_driver() {
  Driver driver{};
  load(driver.device_get, "cuDeviceGet");
  load(driver.device_get_attribute, "cuDeviceGetAttribute");
  load(driver.mem_address_reserve, "cuMemAddressReserve");
  load(driver.mem_address_free, "cuMemAddressFree");
  load(driver.mem_create, "cuMemCreate");
  load(driver.mem_release, "cuMemRelease");
  load(driver.mem_map, "cuMemMap");
  load(driver.mem_unmap, "cuMemUnmap");
  load(driver.mem_set_access, "cuMemSetAccess");
  load(driver.mem_get_allocation_granularity, "cuMemGetAllocationGranularity");
  load(driver.stream_wait_value32, "cuStreamWaitValue32");
  load(driver.get_error_name, "cuGetErrorName");
  return driver;
}

void throw_driver_error(const Driver& driver, CUresult status, const char* call,
                        const std::string& asked, const std::string& advice) {
  const char* name = nullptr;
  if (driver.get_error_name(status, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown";
  throw DeviceError(asked + " failed: " + name + " (" + std::to_string(status) + ") from " + call +
                    "; " + advice);
}

}  // namespace ebb

#include "device/cuda_backend.h"
#include "device/errors.h"

namespace ebb {

std::unique_ptr<Device> create_cuda_device(const DeviceOptions&) {
  throw ConfigError("built without the CUDA toolkit; use --device host");
}

CudaProbe probe_cuda() { return {.devices = {}, .note = "built without the CUDA toolkit"}; }

}  // namespace ebb

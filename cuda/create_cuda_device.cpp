#include "cuda/cuda_device.h"
#include "device/backends.h"

namespace ebb {

std::unique_ptr<Device> create_cuda_device(const DeviceOptions& options) {
  return std::make_unique<CudaDevice>(options);
}

}  // namespace ebb

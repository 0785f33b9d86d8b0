#include "device/cuda_backend.h"
#include "device/errors.h"

namespace ebb {

std::unique_ptr<Device> create_cuda_device(const DeviceOptions&) {
  const CudaProbe probe = probe_cuda();
  const std::string why =
      probe.devices.empty() ? probe.note : std::to_string(probe.devices.size()) + " devices seen";
  throw ConfigError("this version has no CUDA training backend yet (" + why +
                    "); use --device host");
}

}  // namespace ebb

#include "device/backends.h"
#include "device/cuda_architectures.h"
#include "device/errors.h"
#include "device/kernels.h"

namespace ebb {

std::unique_ptr<Device> create_cuda_device(const DeviceOptions&) {
  throw ConfigError("built without the CUDA toolkit; use `device` host");
}

std::unique_ptr<Kernels> create_counting_cuda_kernels(AttentionKernels) { return nullptr; }

std::string cuda_architectures() { return {}; }

CudaProbe probe_cuda() {
  return {.devices = {}, .note = "built without the CUDA toolkit", .attention_library = {}};
}

std::string gpu_address(int) { throw LogicError("built without the CUDA toolkit"); }

bool can_read_gpu(int, const std::string&) { return false; }

}  // namespace ebb

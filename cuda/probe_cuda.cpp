#include <cuda_runtime_api.h>

#include <string>

#include "device/device.h"

namespace ebb {
namespace {

std::string describe(const cudaDeviceProp& device) {
  return std::string(device.name) + ", " + std::to_string(device.totalGlobalMem >> 30) +
         " GiB, sm_" + std::to_string(device.major) + std::to_string(device.minor);
}

std::string explain(cudaError_t status) {
  int driver_version = 0;
  cudaDriverGetVersion(&driver_version);
  if (driver_version == 0) return "no CUDA driver on this machine";
  return std::string("no usable CUDA device: ") + cudaGetErrorString(status);
}

}  // namespace

CudaProbe probe_cuda() {
  CudaProbe probe;
  int num_devices = 0;
  cudaError_t status = cudaGetDeviceCount(&num_devices);
  for (int i = 0; status == cudaSuccess && i < num_devices; ++i) {
    cudaDeviceProp device;
    status = cudaGetDeviceProperties(&device, i);
    if (status == cudaSuccess) probe.devices.push_back(describe(device));
  }
  if (probe.devices.empty()) {
    probe.note = explain(status == cudaSuccess ? cudaErrorNoDevice : status);
  }
  (void)cudaGetLastError();  // a failed probe leaves no error behind for later calls
  return probe;
}

}  // namespace ebb

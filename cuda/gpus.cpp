#include "cuda/gpus.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "cuda/attention_library.h"
#include "cuda/cuda_error.h"
#include "cuda/driver.h"
#include "cuda/kernels/gpu_launch.h"
#include "device/cuda_architectures.h"
#include "device/device.h"
#include "device/errors.h"

namespace ebb {
namespace {

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  EBB_CUDA(cudaDeviceGetAttribute(&value, which, index),
           "asking for an attribute of GPU " + std::to_string(index));
  return value;
}

int num_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// A CUDA status that means that the build has no code for a GPU, and a remedy other than a new
/// build. For newer GPUs, the driver compiles code from PTX.
struct NoCode {
  cudaError_t status;
  std::string_view remedy;
};
constexpr NoCode kNoCode[] = {
    {cudaErrorNoKernelImageForDevice, ""},
    {cudaErrorInvalidDeviceFunction, ""},
    {cudaErrorUnsupportedPtxVersion, ""},
    {cudaErrorJitCompilerNotFound,
     "install libnvidia-ptxjitcompiler, with which the driver compiles PTX, "},
    {cudaErrorJitCompilationDisabled,
     "unset CUDA_DISABLE_PTX_JIT and CUDA_DISABLE_JIT, so that the driver compiles PTX, "},
};

/// Checks that this build has code for the current device of this thread.
void check_code(int index) {
  const cudaError_t status = cuda::find_code();
  if (status == cudaSuccess) return;
  const auto* found = std::ranges::find(kNoCode, status, &NoCode::status);
  if (found == std::end(kNoCode)) {
    throw_cuda_error(status, "cudaFuncGetAttributes", "loading a kernel", __FILE__, __LINE__);
  }
  (void)cudaGetLastError();
  throw ConfigError("this build has no code for " + describe_gpu(index) + ": " +
                    cudaGetErrorName(status) + "; " + std::string(found->remedy) +
                    "configure with -DCMAKE_CUDA_ARCHITECTURES=native, or use `device` host");
}

/// Can blocks be mapped on this GPU? The CUDA runtime has no name for this attribute.
bool maps_memory(int index) {
  const Driver driver = load_driver();
  CUdevice device = 0;
  int value = 0;
  const char* call = "cuDeviceGet";
  CUresult status = driver.device_get(&device, index);
  if (status == CUDA_SUCCESS) {
    call = "cuDeviceGetAttribute";
    status = driver.device_get_attribute(
        &value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
  }
  if (status == CUDA_SUCCESS) return value != 0;
  throw_driver_error(driver, status, call,
                     "asking GPU " + std::to_string(index) + " whether it maps",
                     "check the GPU with nvidia-smi");
}

}  // namespace

std::string describe_gpu(int index) {
  cudaDeviceProp device;
  EBB_CUDA(cudaGetDeviceProperties(&device, index), "asking what GPU " + std::to_string(index));
  return std::string(device.name) + ", " + std::to_string(device.totalGlobalMem >> 30) +
         " GiB, sm_" + std::to_string(device.major) + std::to_string(device.minor);
}

std::string why_no_gpu() {
  int driver_version = 0;
  (void)cudaDriverGetVersion(&driver_version);
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  (void)cudaGetLastError();  // clears the error, so that later calls do not report it
  if (driver_version == 0) return "no CUDA driver on this machine";
  int runtime_version = 0;
  (void)cudaRuntimeGetVersion(&runtime_version);
  return std::string("no usable CUDA device: ") + cudaGetErrorString(status) +
         " (driver for CUDA " + version_text(driver_version) + ", built with " +
         version_text(runtime_version) + ")";
}

void check_gpu(int index) {
  const int count = num_gpus();
  if (count == 0) throw ConfigError(why_no_gpu() + "; use `device` host");
  if (index < 0 || index >= count) {
    throw ConfigError("there is no GPU " + std::to_string(index) + ": this machine has " +
                      std::to_string(count) + ", counted from 0");
  }
  const int architecture = 10 * attribute(cudaDevAttrComputeCapabilityMajor, index) +
                           attribute(cudaDevAttrComputeCapabilityMinor, index);
  if (architecture < kOldestArchitecture) {
    throw ConfigError(describe_gpu(index) + " is older than sm_" +
                      std::to_string(kOldestArchitecture) +
                      ", the oldest that Ebb runs on; use `device` host");
  }
  if (attribute(cudaDevAttrCanUseHostPointerForRegisteredMem, index) == 0) {
    throw ConfigError(describe_gpu(index) +
                      " cannot read registered host memory at the host's addresses; use `device` "
                      "host");
  }
  EBB_CUDA(cudaSetDevice(index), "using GPU " + std::to_string(index));
  if (!maps_memory(index)) {
    throw ConfigError(
        describe_gpu(index) +
        " cannot map its memory at addresses that were reserved, as some virtual GPUs "
        "cannot; use `device` host");
  }
  check_code(index);
}

std::string architectures_text(std::string_view built, int runtime_version) {
  std::string compiled;
  bool has_ptx = false;
  while (!built.empty()) {
    const size_t end = std::min(built.find(' '), built.size());
    const std::string_view one = built.substr(0, end);
    built.remove_prefix(std::min(end + 1, built.size()));
    has_ptx = has_ptx || !one.ends_with("-real");
    if (one.ends_with("-virtual")) continue;
    compiled += (compiled.empty() ? "sm_" : ", sm_") + std::string(one.substr(0, one.find('-')));
  }
  const std::string newer = "; newer GPUs, such as sm_100 and sm_120, ";
  const std::string how =
      has_ptx ? "compile them from PTX at the first start, which needs a driver for CUDA " +
                    version_text(runtime_version) + " or later"
              : "have none in this build: configure with -DCMAKE_CUDA_ARCHITECTURES=native";
  return "compiled for " + compiled + newer + how + "; measured on sm_90 only";
}

std::string cuda_architectures() {
  int runtime_version = 0;
  (void)cudaRuntimeGetVersion(&runtime_version);
  return architectures_text(EBB_CUDA_ARCHITECTURES, runtime_version);
}

CudaProbe probe_cuda() {
  CudaProbe probe;
  const int count = num_gpus();
  int driver_version = 0;
  (void)cudaDriverGetVersion(&driver_version);
  for (int i = 0; i < count; ++i) {
    probe.devices.push_back(describe_gpu(i) + ", driver for CUDA " + version_text(driver_version));
  }
  if (probe.devices.empty()) {
    probe.note = why_no_gpu();
  } else {
    probe.attention_library = attention_library_name();
  }
  return probe;
}

}  // namespace ebb

#include "cuda/cuda_error.h"

#include "device/errors.h"

namespace ebb {
namespace {

std::string_view advice_for(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return "other programs may hold memory of this GPU (nvidia-smi shows them); lower "
             "`device_memory`";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
      return "this process cannot use the device any more: run it again under compute-sanitizer "
             "to find the kernel";
    case cudaErrorInvalidDeviceFunction:
      return "this build has no code for this GPU: configure with "
             "-DCMAKE_CUDA_ARCHITECTURES=native";
    case cudaErrorHostMemoryNotRegistered:
      return "copies to and from the device need memory of MemoryKind::Pinned";
    default:
      return "run with CUDA_LAUNCH_BLOCKING=1 to find the first error, or with `device` host";
  }
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

void throw_cuda_error(cudaError_t status, std::string_view call, std::string asked,
                      const char* file, int line) {
  (void)cudaGetLastError();  // reported here, so that the next check does not report it again
  std::string text = asked + " failed: " + cudaGetErrorName(status) + " (" +
                     cudaGetErrorString(status) + ") from " +
                     std::string(call.substr(0, call.find('('))) + " at ";
  text.append(file_name(file)).append(":").append(std::to_string(line)).append("; ");
  throw DeviceError(text.append(advice_for(status)));
}

}  // namespace ebb

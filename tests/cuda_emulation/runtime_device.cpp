// Errors, versions and devices of the emulated runtime.
#include <cstdio>
#include <cstring>

#include "device/errors.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/cuda_emulation/stream_queue.h"

using namespace ebb::emulation;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    case cudaErrorJitCompilerNotFound:
      return "cudaErrorJitCompilerNotFound";
    case cudaErrorJitCompilationDisabled:
      return "cudaErrorJitCompilationDisabled";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "cudaErrorHostMemoryAlreadyRegistered";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    default:
      return "another cudaError";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  static thread_local std::string text;
  text = error == cudaErrorLaunchFailure ? "emulated: " + last_failure() : "emulated";
  return text.c_str();
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = settings().driver_version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  const bool any = settings().driver_version > 0 && settings().num_devices > 0;
  *count = any ? settings().num_devices : 0;
  return any ? cudaSuccess : set_last_error(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return finish();
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= settings().num_devices) return finish(cudaErrorInvalidDevice);
  if (is_refused("cudaSetDevice")) return finish(cudaErrorUnknown);
  set_current_device(device);
  return finish();
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= settings().num_devices) return finish(cudaErrorInvalidDevice);
  if (is_refused("cudaGetDeviceProperties")) return finish(cudaErrorUnknown);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated GPU");
  properties->totalGlobalMem = settings().memory_bytes;
  properties->major = settings().architecture / 10;
  properties->minor = settings().architecture % 10;
  properties->multiProcessorCount = 4;
  properties->sharedMemPerBlockOptin = size_t{227} << 10;
  properties->l2CacheSize = 4 << 20;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (is_refused("cudaDeviceGetAttribute")) return finish(cudaErrorUnknown);
  if (device < 0 || device >= settings().num_devices) return finish(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = 48 << 10;
      return finish();
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      return finish();
    case cudaDevAttrComputeCapabilityMajor:
      *value = settings().architecture / 10;
      return finish();
    case cudaDevAttrComputeCapabilityMinor:
      *value = settings().architecture % 10;
      return finish();
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
      *value = 1;
      return finish();
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 227 << 10;
      return finish();
  }
  return finish(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  std::snprintf(id, static_cast<size_t>(length), "emulated %d", device);
  return finish();
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
  const bool is_there =
      std::sscanf(id, "emulated %d", device) == 1 && *device < settings().num_devices;
  return finish(is_there ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceCanAccessPeer(int* can_access, int, int) {
  *can_access = 1;
  return finish();
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr, int, int) {
  *value = settings().has_nvlink ? 1 : 0;
  return finish();
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int) {
  if (is_refused("cudaDeviceEnablePeerAccess")) return finish(cudaErrorUnknown);
  return finish(peer < settings().num_devices ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (is_refused("cudaDeviceGetStreamPriorityRange")) return finish(cudaErrorUnknown);
  *least = 0;
  *greatest = -5;
  return finish();
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  *function = symbol == settings().missing_driver_call ? nullptr : driver_call(symbol);
  *status = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return finish();
}

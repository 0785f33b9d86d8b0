#include "cuda/peer_memory.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "cuda/cuda_error.h"

namespace ebb {
namespace {

/// The content of a MemoryName.
struct GpuMemory {
  int64_t process = 0;
  int64_t gpu = 0;                  // in this process
  const std::byte* data = nullptr;  // in this process
  cudaIpcMemHandle_t handle = {};
  std::byte padding[sizeof(MemoryName) - 3 * sizeof(int64_t) - sizeof(cudaIpcMemHandle_t)] = {};
};
static_assert(sizeof(GpuMemory) == sizeof(MemoryName));

void enable_peer_access(int gpu) {
  const cudaError_t status = cudaDeviceEnablePeerAccess(gpu, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {
    (void)cudaGetLastError();
    return;
  }
  EBB_CUDA(status, "reading the memory of GPU " + std::to_string(gpu));
}

}  // namespace

MemoryName name_of_gpu_memory(const std::byte* memory, int index) {
  GpuMemory named{.process = getpid(), .gpu = index, .data = memory};
  EBB_CUDA(cudaIpcGetMemHandle(&named.handle, const_cast<std::byte*>(memory)),
           "naming memory for other processes");
  return std::bit_cast<MemoryName>(named);
}

std::shared_ptr<const std::byte> open_gpu_memory(const MemoryName& name, int index) {
  const auto named = std::bit_cast<GpuMemory>(name);
  if (named.process == getpid()) {
    if (named.gpu != index) enable_peer_access(static_cast<int>(named.gpu));
    return {named.data, [](const std::byte*) {}};
  }
  void* data = nullptr;
  EBB_CUDA(cudaIpcOpenMemHandle(&data, named.handle, cudaIpcMemLazyEnablePeerAccess),
           "reading the memory of a GPU of process " + std::to_string(named.process));
  return {static_cast<const std::byte*>(data), [data, index](const std::byte*) {
            (void)cudaSetDevice(index);
            (void)cudaIpcCloseMemHandle(data);
          }};
}

std::string gpu_address(int index) {
  char address[32] = {};
  EBB_CUDA(cudaDeviceGetPCIBusId(address, sizeof address, index), "asking for a GPU's address");
  return address;
}

/// GPUs whose link has atomic operations are joined by NVLink. Over PCIe, the driver may offer
/// access although an IOMMU makes the data wrong. With few hardware queues, an operation could wait
/// in the queue of the addition, or of the load of a part, for which it waits.
bool can_read_gpu(int index, const std::string& address) {
  constexpr int kQueuesByDefault = 8;
  const char* const queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (queues != nullptr && std::atoi(queues) < kQueuesByDefault) return false;
  int other = 0, can_read = 0, has_atomics = 0;
  if (cudaDeviceGetByPCIBusId(&other, address.c_str()) != cudaSuccess) {
    (void)cudaGetLastError();  // this process does not see the other GPU
    return false;
  }
  if (other == index) return false;
  EBB_CUDA(cudaDeviceCanAccessPeer(&can_read, index, other), "asking for access between GPUs");
  if (can_read == 0) return false;
  EBB_CUDA(
      cudaDeviceGetP2PAttribute(&has_atomics, cudaDevP2PAttrNativeAtomicSupported, index, other),
      "asking for atomic operations between GPUs");
  return has_atomics != 0;
}

}  // namespace ebb

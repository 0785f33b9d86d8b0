// Memory of the emulated runtime. Large allocations have their own pages, which are unmapped when
// freed. Small allocations come from the allocator, so that AddressSanitizer checks their bounds
// and lifetimes.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "device/errors.h"
#include "system/pages.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/cuda_emulation/stream_queue.h"

using namespace ebb::emulation;

namespace {

constexpr size_t kPagesFrom = size_t{256} << 10;
constexpr size_t kAlignment = 256;

size_t whole_pages(size_t bytes) {
  return (bytes + ebb::kPageBytes - 1) / ebb::kPageBytes * ebb::kPageBytes;
}

void* allocate(size_t bytes) {
  if (bytes < kPagesFrom) {
    void* memory = nullptr;
    if (posix_memalign(&memory, kAlignment, bytes) != 0) return nullptr;
    std::memset(memory, 0xcd, bytes);  // CUDA's memory is not initialised
    return memory;
  }
  std::byte* memory = ebb::reserve_addresses(whole_pages(bytes));
  ebb::commit_memory(memory, whole_pages(bytes), "emulated device memory");
  return memory;
}

/// Checks the memory on both sides of a copy. Throws LogicError.
void check_copy(const void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const bool from_host = kind == cudaMemcpyHostToDevice, to_host = kind == cudaMemcpyDeviceToHost;
  EBB_CHECK(from_host || to_host || kind == cudaMemcpyDeviceToDevice, "a copy of another kind");
  EBB_CHECK(from_host ? is_pinned_memory(from, bytes) : is_device_memory(from, bytes),
            from_host ? "an asynchronous copy from host memory that is not pinned"
                      : "a copy from what is not device memory");
  EBB_CHECK(to_host ? is_pinned_memory(to, bytes) : is_device_memory(to, bytes),
            to_host ? "an asynchronous copy to host memory that is not pinned"
                    : "a copy to what is not device memory");
}

/// Copies, at the speed of the settings if the copy is to or from the host.
void copy(void* to, const void* from, size_t bytes, bool by_link) {
  const double bytes_per_s = settings().copy_bytes_per_s;
  if (by_link && bytes_per_s > 0) {
    const std::chrono::duration<double> time(static_cast<double>(bytes) / bytes_per_s);
    std::this_thread::sleep_for(time);
  }
  std::memcpy(to, from, bytes);
}

}  // namespace

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  if (is_refused("cudaMemGetInfo")) return finish(cudaErrorUnknown);
  *total_bytes = settings().memory_bytes;
  *free_bytes = *total_bytes - used_device_bytes();
  return finish();
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (is_lost() || bytes == 0) return finish(cudaErrorInvalidValue);
  if (is_refused("cudaMalloc")) return finish(cudaErrorUnknown);
  if (bytes > settings().memory_bytes - used_device_bytes()) {
    return finish(cudaErrorMemoryAllocation);
  }
  *memory = allocate(bytes);
  if (*memory == nullptr) return finish(cudaErrorMemoryAllocation);
  add_range(*memory, bytes, Kind::Device);
  return finish();
}

/// Device memory is memory of this process, so other processes cannot open it.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void*) {
  if (is_refused("cudaIpcGetMemHandle")) return finish(cudaErrorUnknown);
  *handle = {};
  return finish();
}

cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned int) {
  return finish(cudaErrorNotSupported);
}

cudaError_t cudaIpcCloseMemHandle(void*) { return finish(); }

cudaError_t cudaFree(void* memory) {
  make_context();
  if (memory == nullptr) return finish();
  const size_t bytes = remove_range(memory, Kind::Device);
  ebb::announce_write(static_cast<std::byte*>(memory), bytes);
  if (bytes < kPagesFrom) {
    std::free(memory);
  } else {
    ebb::release_addresses(static_cast<std::byte*>(memory), whole_pages(bytes));
  }
  return finish();
}

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned int flags) {
  EBB_CHECK(
      reinterpret_cast<uintptr_t>(memory) % ebb::kPageBytes == 0 && bytes % ebb::kPageBytes == 0,
      "pages are registered whole, or neighbours are pinned along");
  EBB_CHECK(flags == (cudaHostRegisterPortable | cudaHostRegisterMapped), "other flags");
  if (is_refused("cudaHostRegister")) return finish(cudaErrorUnknown);
  if (is_pinned_memory(memory, 1)) return finish(cudaErrorHostMemoryAlreadyRegistered);
  if (bytes > settings().pinnable_at_once || bytes > settings().pinnable_bytes - pinned_bytes()) {
    return finish(cudaErrorMemoryAllocation);
  }
  // Another thread may have registered it just now.
  if (!add_range(memory, bytes, Kind::Pinned)) return finish(cudaErrorHostMemoryAlreadyRegistered);
  return finish();
}

cudaError_t cudaHostUnregister(void* memory) {
  make_context();
  remove_range(memory, Kind::Pinned);
  return finish();
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (is_lost()) return finish();
  if (bytes == 0) return finish();
  if (is_refused("cudaMemcpyAsync")) return finish(cudaErrorUnknown);
  check_copy(to, from, bytes, kind);
  if ((kind == cudaMemcpyHostToDevice && !is_in_one_range(from, bytes)) ||
      (kind == cudaMemcpyDeviceToHost && !is_in_one_range(to, bytes))) {
    return finish(cudaErrorInvalidValue);
  }
  const bool by_link = kind != cudaMemcpyDeviceToDevice;
  enqueue(stream, [to, from, bytes, by_link] { copy(to, from, bytes, by_link); });
  return finish();
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  if (is_lost()) return finish();
  EBB_CHECK(device_may_touch(memory, bytes),
            "filling what is not memory of the device, nor pinned");
  if (!is_on_current_device(stream)) return finish(cudaErrorInvalidResourceHandle);
  if (is_refused("cudaMemsetAsync")) return finish(cudaErrorUnknown);
  enqueue(stream, [memory, value, bytes] { std::memset(memory, value, bytes); });
  return finish();
}

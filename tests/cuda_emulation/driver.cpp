// Virtual memory and waits of the emulated driver. Physical blocks are ranges of a file in memory
// that are mapped at the requested addresses, so that an access to an address without a block
// faults.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "device/errors.h"
#include "system/pages.h"
#include "system/tsan.h"
#include "tests/cuda_emulation/code_loading.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/cuda_emulation/launch_queue.h"
#include "tests/cuda_emulation/stream_queue.h"

namespace ebb::emulation {
namespace {

struct Block {
  off_t offset = 0;  // in the file
  size_t bytes = 0;
  int num_mapped = 0;
};

struct Mapping {
  CUmemGenericAllocationHandle handle = 0;
  bool has_access = false;
};

struct VirtualMemory {
  std::mutex mutex;
  std::map<CUdeviceptr, size_t> reserved;
  std::unordered_map<CUmemGenericAllocationHandle, Block> blocks;
  std::unordered_map<CUdeviceptr, Mapping> mapped;
  CUmemGenericAllocationHandle next_handle = 1;
  const int file = memfd_create("emulated blocks", MFD_CLOEXEC);
  off_t file_bytes = 0;
};

VirtualMemory& memory() {
  static VirtualMemory one;
  return one;
}

std::byte* pointer(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }

CUresult finish_driver(CUresult result = CUDA_SUCCESS) {
  return is_lost() ? CUDA_ERROR_LAUNCH_FAILED : result;
}

/// Called before each call. Returns success, or the status that the call must return at once. A
/// thread that has not set its device has no context for the call.
CUresult begin_driver(const char* call) {
  if (!has_set_device()) return CUDA_ERROR_INVALID_CONTEXT;
  return is_refused(call) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult device_get(CUdevice* device, int index) {
  if (const CUresult no = begin_driver("cuDeviceGet"); no != CUDA_SUCCESS) return no;
  if (index < 0 || index >= settings().num_devices) return CUDA_ERROR_INVALID_DEVICE;
  *device = index;
  return finish_driver();
}

CUresult device_get_attribute(int* value, CUdevice_attribute attribute, CUdevice) {
  if (const CUresult no = begin_driver("cuDeviceGetAttribute"); no != CUDA_SUCCESS) return no;
  EBB_CHECK(attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "another one");
  *value = settings().maps_memory ? 1 : 0;
  return finish_driver();
}

CUresult address_reserve(CUdeviceptr* begin, size_t bytes, size_t alignment, CUdeviceptr wanted,
                         unsigned long long flags) {
  if (const CUresult no = begin_driver("cuMemAddressReserve"); no != CUDA_SUCCESS) return no;
  EBB_CHECK(alignment == 0 && wanted == 0 && flags == 0, "other arguments");
  EBB_CHECK(bytes > 0 && bytes % settings().granularity == 0, "not a multiple of the granularity");
  VirtualMemory& m = memory();
  std::lock_guard lock(m.mutex);
  *begin = reinterpret_cast<CUdeviceptr>(reserve_addresses(bytes));
  m.reserved.emplace(*begin, bytes);
  count_reservation(1);
  return finish_driver();
}

CUresult address_free(CUdeviceptr begin, size_t bytes) {
  VirtualMemory& m = memory();
  std::lock_guard lock(m.mutex);
  const auto found = m.reserved.find(begin);
  EBB_CHECK(found != m.reserved.end() && found->second == bytes, "addresses freed by halves");
  for (const auto& [address, mapping] : m.mapped) {
    EBB_CHECK(address < begin || address >= begin + bytes, "addresses freed under a block");
  }
  release_addresses(pointer(begin), bytes);
  m.reserved.erase(found);
  count_reservation(-1);
  return finish_driver();
}

CUresult create(CUmemGenericAllocationHandle* handle, size_t bytes,
                const CUmemAllocationProp* properties, unsigned long long flags) {
  if (const CUresult no = begin_driver("cuMemCreate"); no != CUDA_SUCCESS) return no;
  EBB_CHECK(properties->type == CU_MEM_ALLOCATION_TYPE_PINNED && flags == 0 &&
                properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE,
            "other physical memory");
  if (bytes == 0 || bytes % settings().granularity != 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > settings().memory_bytes - used_device_bytes()) return CUDA_ERROR_OUT_OF_MEMORY;
  VirtualMemory& m = memory();
  std::lock_guard lock(m.mutex);
  const Block block{.offset = m.file_bytes, .bytes = bytes};
  m.file_bytes += static_cast<off_t>(bytes);  // released ranges are never used again
  EBB_CHECK(ftruncate(m.file, m.file_bytes) == 0, "the file of blocks does not grow");
  *handle = m.next_handle++;
  m.blocks.emplace(*handle, block);
  add_physical(bytes);
  count_block(1);
  return finish_driver();
}

CUresult release(CUmemGenericAllocationHandle handle) {
  VirtualMemory& m = memory();
  std::lock_guard lock(m.mutex);
  const auto found = m.blocks.find(handle);
  EBB_CHECK(found != m.blocks.end(), "releasing no block");
  const Block& block = found->second;
  EBB_CHECK(block.num_mapped == 0, "releasing a block that is mapped");
  EBB_CHECK(fallocate(m.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, block.offset,
                      static_cast<off_t>(block.bytes)) == 0,
            "a block's memory is not given back");
  remove_physical(block.bytes);
  count_block(-1);
  m.blocks.erase(found);
  return finish_driver();
}

bool is_reserved(const VirtualMemory& m, CUdeviceptr address, size_t bytes) {
  const auto next = m.reserved.upper_bound(address);
  if (next == m.reserved.begin()) return false;
  const auto& [begin, size] = *std::prev(next);
  return address + bytes <= begin + size;
}

CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long flags) {
  if (const CUresult no = begin_driver("cuMemMap"); no != CUDA_SUCCESS) return no;
  const DriverCall call(Access::Map);
  VirtualMemory& m = memory();
  std::lock_guard lock(m.mutex);
  const auto found = m.blocks.find(handle);
  EBB_CHECK(found != m.blocks.end(), "mapping no block");
  EBB_CHECK(offset == 0 && flags == 0 && bytes == found->second.bytes, "part of a block is mapped");
  if (!is_reserved(m, address, bytes) || m.mapped.contains(address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // No access before cuMemSetAccess.
  EBB_CHECK(mmap(pointer(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, m.file,
                 found->second.offset) != MAP_FAILED,
            "a block is not mapped");
  ++found->second.num_mapped;
  m.mapped.emplace(address, Mapping{.handle = handle});
  return finish_driver();
}

CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
                    size_t count) {
  if (const CUresult no = begin_driver("cuMemSetAccess"); no != CUDA_SUCCESS) return no;
  const DriverCall call(Access::Map);
  EBB_CHECK(count == 1 && access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "other access");
  VirtualMemory& m = memory();
  std::lock_guard lock(m.mutex);
  const auto found = m.mapped.find(address);
  if (found == m.mapped.end()) return CUDA_ERROR_INVALID_VALUE;
  EBB_CHECK(mprotect(pointer(address), bytes, PROT_READ | PROT_WRITE) == 0, "no access");
  add_range(pointer(address), bytes, Kind::Block);
  found->second.has_access = true;
  return finish_driver();
}

CUresult unmap(CUdeviceptr address, size_t bytes) {
  if (const CUresult no = begin_driver("cuMemUnmap"); no != CUDA_SUCCESS) return no;
  const DriverCall call(Access::Map);
  VirtualMemory& m = memory();
  std::lock_guard lock(m.mutex);
  const auto found = m.mapped.find(address);
  EBB_CHECK(found != m.mapped.end(), "unmapping where no block is");
  Block& block = m.blocks.at(found->second.handle);
  EBB_CHECK(bytes == block.bytes, "part of a block is unmapped");
  if (found->second.has_access) remove_range(pointer(address), Kind::Block);
  announce_write(pointer(address), bytes);  // a race with a running use of the block
  EBB_CHECK(mmap(pointer(address), bytes, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED,
            "a block is not unmapped");
  --block.num_mapped;
  m.mapped.erase(found);
  return finish_driver();
}

CUresult get_granularity(size_t* granularity, const CUmemAllocationProp*,
                         CUmemAllocationGranularity_flags) {
  if (const CUresult no = begin_driver("cuMemGetAllocationGranularity"); no != CUDA_SUCCESS) {
    return no;
  }
  *granularity = settings().granularity;
  return finish_driver();
}

CUresult wait_value32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  EBB_CHECK(flags == CU_STREAM_WAIT_VALUE_GEQ, "another comparison");
  auto* word = reinterpret_cast<uint32_t*>(address);
  EBB_CHECK(device_may_touch(word, sizeof *word), "waiting for a word that is not the device's");
  if (is_lost()) return finish_driver();
  if (!is_on_current_device(stream)) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult no = begin_driver("cuStreamWaitValue32"); no != CUDA_SUCCESS) return no;
  constexpr useconds_t kPollMicroseconds = 20;
  const AwaitedWord awaited{word, value};
  begin_wait(awaited);
  enqueue(stream, [awaited] {
    while (!awaited.is_written() && !is_lost()) usleep(kPollMicroseconds);
    end_wait(awaited);
    tsan_acquire(awaited.word);
  });
  return finish_driver();
}

CUresult get_error_name(CUresult result, const char** name) {
  switch (result) {
    case CUDA_ERROR_INVALID_VALUE:
      *name = "CUDA_ERROR_INVALID_VALUE";
      return CUDA_SUCCESS;
    case CUDA_ERROR_LAUNCH_FAILED:
      *name = "CUDA_ERROR_LAUNCH_FAILED";
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

void* driver_call(const std::string& name) {
  static const std::unordered_map<std::string, void*> calls = {
      {"cuDeviceGet", reinterpret_cast<void*>(&device_get)},
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(&device_get_attribute)},
      {"cuMemAddressReserve", reinterpret_cast<void*>(&address_reserve)},
      {"cuMemAddressFree", reinterpret_cast<void*>(&address_free)},
      {"cuMemCreate", reinterpret_cast<void*>(&create)},
      {"cuMemRelease", reinterpret_cast<void*>(&release)},
      {"cuMemMap", reinterpret_cast<void*>(&map)},
      {"cuMemUnmap", reinterpret_cast<void*>(&unmap)},
      {"cuMemSetAccess", reinterpret_cast<void*>(&set_access)},
      {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(&get_granularity)},
      {"cuStreamWaitValue32", reinterpret_cast<void*>(&wait_value32)},
      {"cuGetErrorName", reinterpret_cast<void*>(&get_error_name)},
  };
  const auto found = calls.find(name);
  return found == calls.end() ? nullptr : found->second;
}

}  // namespace ebb::emulation

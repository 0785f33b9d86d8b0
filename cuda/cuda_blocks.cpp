#include "cuda/cuda_blocks.h"

#include <algorithm>
#include <string>

#include "cuda/cuda_error.h"
#include "cuda/kernel_stream.h"
#include "cuda/setup_stream.h"
#include "device/errors.h"

namespace ebb {
namespace {

CUmemAllocationProp physical_memory_of(int device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return properties;
}

}  // namespace

CudaBlocks::CudaBlocks(const Driver& driver, int device, Budget& budget, size_t block_bytes,
                       uint32_t num_blocks, bool poison)
    : driver_(driver),
      device_(device),
      budget_(budget),
      block_bytes_(block_bytes),
      num_blocks_(num_blocks),
      poison_(poison) {
  EBB_CHECK(block_bytes > 0, "a block must have at least one byte");
  check_granularity();
  handles_.reserve(num_blocks);
  budget_.take(block_bytes * num_blocks, "blocks");
  try {
    take_blocks();
  } catch (...) {
    release_blocks();
    throw;
  }
}

void CudaBlocks::enter() const {
  EBB_CUDA(cudaSetDevice(device_), "using GPU " + std::to_string(device_));
}

void CudaBlocks::check_granularity() const {
  enter();
  const CUmemAllocationProp properties = physical_memory_of(device_);
  size_t granularity = 0;
  const CUresult status = driver_.mem_get_allocation_granularity(&granularity, &properties,
                                                                 CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (status != CUDA_SUCCESS) {
    throw_driver_error(driver_, status, "cuMemGetAllocationGranularity",
                       "asking for the granularity of device memory",
                       "check the GPU with nvidia-smi");
  }
  if (block_bytes_ % granularity == 0) return;
  throw ConfigError("chunks of " + format_bytes(block_bytes_) +
                    " cannot be mapped: this GPU maps multiples of " + format_bytes(granularity) +
                    "; try `chunk_bytes` " + std::to_string(granularity >> 20) + "MiB");
}

void CudaBlocks::take_blocks() {
  const CUmemAllocationProp properties = physical_memory_of(device_);
  for (uint32_t i = 0; i < num_blocks_; ++i) {
    CUmemGenericAllocationHandle handle = 0;
    const CUresult status = driver_.mem_create(&handle, block_bytes_, &properties, 0);
    if (status == CUDA_ERROR_OUT_OF_MEMORY) {
      throw OutOfMemory("device", block_bytes_ * num_blocks_, block_bytes_ * i,
                        budget_.limit_bytes(), "blocks",
                        "the GPU has less free memory than the budget (nvidia-smi shows which "
                        "programs use it); lower `device_memory`");
    }
    if (status != CUDA_SUCCESS) {
      throw_driver_error(driver_, status, "cuMemCreate",
                         "allocating a block of " + format_bytes(block_bytes_),
                         "check the GPU with nvidia-smi");
    }
    handles_.push_back(handle);
  }
}

CudaBlocks::~CudaBlocks() { release_blocks(); }

void CudaBlocks::release_blocks() noexcept {
  (void)cudaSetDevice(device_);
  for (const Range& range : ranges_) {
    for (size_t place = 0; place < range.occupants.size(); ++place) {
      if (range.occupants[place] == kNone) continue;
      (void)driver_.mem_unmap(range.begin + place * block_bytes_, block_bytes_);
    }
  }
  for (const CUmemGenericAllocationHandle handle : handles_) (void)driver_.mem_release(handle);
  for (const Range& range : ranges_) {
    (void)driver_.mem_address_free(range.begin, range.occupants.size() * block_bytes_);
  }
  budget_.give_back(block_bytes_ * num_blocks_);
}

std::byte* CudaBlocks::reserve(size_t bytes) {
  const size_t num_places = std::max<size_t>((bytes + block_bytes_ - 1) / block_bytes_, 1);
  Range range{.begin = 0, .occupants = std::vector<uint32_t>(num_places, kNone)};
  enter();
  std::lock_guard lock(mutex_);
  ranges_.reserve(ranges_.size() + 1);
  const size_t all_bytes = num_places * block_bytes_;
  const CUresult status = driver_.mem_address_reserve(&range.begin, all_bytes, 0, 0, 0);
  if (status != CUDA_SUCCESS) {
    throw_driver_error(driver_, status, "cuMemAddressReserve",
                       "reserving addresses for " + format_bytes(all_bytes),
                       "is the address space limited (ulimit -v)?");
  }
  return reinterpret_cast<std::byte*>(ranges_.emplace_back(std::move(range)).begin);
}

auto& CudaBlocks::occupant_at(auto& ranges, const std::byte* address) const {
  const auto wanted = reinterpret_cast<CUdeviceptr>(address);
  const auto found = std::ranges::find_if(ranges, [&](const Range& range) {
    return wanted >= range.begin && wanted < range.begin + range.occupants.size() * block_bytes_;
  });
  EBB_CHECK(found != ranges.end() && (wanted - found->begin) % block_bytes_ == 0,
            "a block is mapped at a place of a reserved range");
  return found->occupants[(wanted - found->begin) / block_bytes_];
}

bool CudaBlocks::lies_at(uint32_t block, const std::byte* address) const {
  std::lock_guard lock(mutex_);
  return occupant_at(ranges_, address) == block;
}

void CudaBlocks::map(uint32_t block, std::byte* address, Stream& user) {
  {
    std::lock_guard lock(mutex_);
    EBB_CHECK(block < num_blocks_, "there is no block " + std::to_string(block));
    uint32_t& occupant = occupant_at(ranges_, address);
    if (occupant != block) {
      enter();
      const auto target = reinterpret_cast<CUdeviceptr>(address);
      if (occupant != kNone) unmap(occupant, target);
      map_at(block, occupant, target);
    }
  }
  if (!poison_) return;
  auto* const stream = dynamic_cast<KernelStream*>(&user);
  EBB_CHECK(stream != nullptr, "a block is poisoned on a stream of the host");
  stream->launch({.name = "poison"}, [address, bytes = block_bytes_](cudaStream_t s) {
    EBB_CUDA(cudaMemsetAsync(address, kPoisonByte, bytes, s), "poisoning a block");
  });
}

void CudaBlocks::unmap(uint32_t& occupant, CUdeviceptr address) const {
  const CUresult status = driver_.mem_unmap(address, block_bytes_);
  if (status != CUDA_SUCCESS) {
    throw_driver_error(driver_, status, "cuMemUnmap", "unmapping block " + std::to_string(occupant),
                       "the device may be lost: see the first error of this run");
  }
  occupant = kNone;
}

void CudaBlocks::map_at(uint32_t block, uint32_t& occupant, CUdeviceptr address) const {
  const char* call = "cuMemMap";
  CUresult status = driver_.mem_map(address, block_bytes_, 0, handles_[block], 0);
  if (status == CUDA_SUCCESS) {
    occupant = block;
    const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    call = "cuMemSetAccess";
    status = driver_.mem_set_access(address, block_bytes_, &access, 1);
  }
  if (status == CUDA_SUCCESS) return;
  throw_driver_error(driver_, status, call,
                     "mapping block " + std::to_string(block) + " of " + format_bytes(block_bytes_),
                     "try a larger chunk size");
}

}  // namespace ebb

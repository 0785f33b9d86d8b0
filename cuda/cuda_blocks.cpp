#include "cuda/cuda_blocks.h"

#include <algorithm>
#include <string>

#include "cuda/cuda_error.h"
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
  EBB_CHECK(block_bytes > 0, "a block of no bytes");
  check_granularity();
  places_.resize(num_blocks);
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
    throw_driver_error(driver_, status, "asking for the granularity of device memory",
                       "is the GPU in order? see nvidia-smi");
  }
  if (block_bytes_ % granularity == 0) return;
  throw ConfigError("chunks of " + format_bytes(block_bytes_) +
                    " cannot be mapped: this GPU maps multiples of " + format_bytes(granularity) +
                    "; try --chunk-size " + std::to_string(granularity >> 20) + "MiB");
}

void CudaBlocks::take_blocks() {
  const CUmemAllocationProp properties = physical_memory_of(device_);
  for (uint32_t i = 0; i < num_blocks_; ++i) {
    CUmemGenericAllocationHandle handle = 0;
    const CUresult status = driver_.mem_create(&handle, block_bytes_, &properties, 0);
    if (status == CUDA_ERROR_OUT_OF_MEMORY) {
      throw OutOfMemory("device", block_bytes_ * num_blocks_, block_bytes_ * i,
                        budget_.limit_bytes(), "blocks",
                        "the GPU has less free than the budget says (nvidia-smi shows who holds "
                        "it); lower --device-memory");
    }
    if (status != CUDA_SUCCESS) {
      throw_driver_error(driver_, status, "taking a block of " + format_bytes(block_bytes_),
                         "is the GPU in order? see nvidia-smi");
    }
    handles_.push_back(handle);
  }
}

CudaBlocks::~CudaBlocks() { release_blocks(); }

void CudaBlocks::release_blocks() noexcept {
  (void)cudaSetDevice(device_);
  for (const CUdeviceptr place : places_) {
    if (place != 0) (void)driver_.mem_unmap(place, block_bytes_);
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
    throw_driver_error(driver_, status, "reserving addresses for " + format_bytes(all_bytes),
                       "is the address space limited (ulimit -v)?");
  }
  return reinterpret_cast<std::byte*>(ranges_.emplace_back(std::move(range)).begin);
}

uint32_t* CudaBlocks::occupant_at(CUdeviceptr address) {
  for (Range& range : ranges_) {
    if (address < range.begin) continue;
    const size_t offset = address - range.begin;
    if (offset >= range.occupants.size() * block_bytes_) continue;
    return offset % block_bytes_ == 0 ? &range.occupants[offset / block_bytes_] : nullptr;
  }
  return nullptr;
}

void CudaBlocks::map(uint32_t block, std::byte* address) {
  const auto target = reinterpret_cast<CUdeviceptr>(address);
  enter();
  {
    std::lock_guard lock(mutex_);
    EBB_CHECK(block < num_blocks_, "there is no block " + std::to_string(block));
    const uint32_t* occupant = occupant_at(target);
    EBB_CHECK(occupant != nullptr, "a block is mapped at a place of a reserved range");
    if (*occupant != block) {
      if (*occupant != kNone) unmap(*occupant);
      if (places_[block] != 0) unmap(block);
      map_at(block, target);
    }
  }
  if (poison_) SetupStream(device_).fill(address, kPoisonByte, block_bytes_);
}

void CudaBlocks::unmap(uint32_t block) {
  const CUdeviceptr place = places_[block];
  const CUresult status = driver_.mem_unmap(place, block_bytes_);
  if (status != CUDA_SUCCESS) {
    throw_driver_error(driver_, status, "unmapping block " + std::to_string(block),
                       "the device may be lost: see the first error of this run");
  }
  *occupant_at(place) = kNone;
  places_[block] = 0;
}

void CudaBlocks::map_at(uint32_t block, CUdeviceptr address) {
  CUresult status = driver_.mem_map(address, block_bytes_, 0, handles_[block], 0);
  if (status == CUDA_SUCCESS) {
    *occupant_at(address) = block;
    places_[block] = address;
    const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    status = driver_.mem_set_access(address, block_bytes_, &access, 1);
  }
  if (status == CUDA_SUCCESS) return;
  throw_driver_error(driver_, status,
                     "mapping block " + std::to_string(block) + " of " + format_bytes(block_bytes_),
                     "try a larger chunk size");
}

}  // namespace ebb

// Blocks of the CUDA backend: physical allocations of device memory, made in the constructor, that
// map() maps at reserved addresses.
//
// A block stays mapped at its earlier addresses: CUDA can map one allocation several times, and a
// write through one address is visible through another to all work that begins after the write has
// ended (CUDA C++ Programming Guide, virtual memory management, "Virtual Aliasing Support"). So
// map() does nothing where the block is mapped already; where another block is mapped, it unmaps
// that block first. map() runs on the caller's thread and blocks no stream, but the driver may wait
// in it for work that was submitted before. On an H200 one call takes 36 to 73 us while kernels or
// loads run, and 1 ms while a store runs (medians). Thread-safety: every method may be called from
// any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "cuda/driver.h"
#include "device/budget.h"

namespace ebb {

class CudaBlocks final : public Blocks {
 public:
  /// Allocates num_blocks * block_bytes from `budget`; the destructor frees them. `poison`: map()
  /// fills blocks with NaN. REQUIRES: `driver` and `budget` outlive the blocks. Throws ConfigError
  /// if block_bytes is not a multiple of the device's mapping granularity; throws OutOfMemory.
  CudaBlocks(const Driver& driver, int device, Budget& budget, size_t block_bytes,
             uint32_t num_blocks, bool poison);
  ~CudaBlocks() override;
  CudaBlocks(const CudaBlocks&) = delete;
  CudaBlocks& operator=(const CudaBlocks&) = delete;

  std::byte* reserve(size_t bytes) override;
  /// If the blocks are poisoned, `user` fills the block with NaN, in stream order.
  void map(uint32_t block, std::byte* address, Stream& user) override;
  bool keep_addresses() const override { return true; }
  bool lies_at(uint32_t block, const std::byte* address) const override;
  size_t block_bytes() const override { return block_bytes_; }
  uint32_t num_blocks() const override { return num_blocks_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Range {
    CUdeviceptr begin = 0;
    std::vector<uint32_t> occupants;  // the block mapped at each block-sized part, or kNone
  };

  /// Makes the device current in the calling thread: the driver's calls use its context.
  void enter() const;
  void check_granularity() const;
  void take_blocks();
  void release_blocks() noexcept;
  /// The block that is mapped at an address. Throws LogicError if the address is not a multiple of
  /// the block size from the beginning of a reserved range.
  auto& occupant_at(auto& ranges, const std::byte* address) const;
  void unmap(uint32_t& occupant, CUdeviceptr address) const;
  void map_at(uint32_t block, uint32_t& occupant, CUdeviceptr address) const;

  const Driver& driver_;
  const int device_;
  Budget& budget_;
  const size_t block_bytes_;
  const uint32_t num_blocks_;
  const bool poison_;

  mutable std::mutex mutex_;
  std::vector<CUmemGenericAllocationHandle> handles_;
  std::vector<Range> ranges_;
};

}  // namespace ebb

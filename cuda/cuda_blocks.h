// Blocks of the CUDA backend: physical allocations, taken when made, mapped where they are wanted.
//
// They keep their addresses: CUDA maps an allocation several times, and what is done under one
// address is seen under another by whatever begins after it has ended (CUDA C++ Programming Guide,
// virtual memory management, "Virtual Aliasing Support"). So map() has something to do only where
// another block lies, which it unmaps. It runs on the caller's thread and blocks no stream, but the
// driver may wait in it for work that was submitted before; what that costs beside running kernels
// has not been measured on a GPU yet. Thread-safety: every method may be called from any thread.
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
  /// Takes num_blocks * block_bytes from `budget` and gives them back when destroyed. REQUIRES:
  /// `driver` and `budget` outlive the blocks. Throws ConfigError where block_bytes is not a
  /// multiple of what the device maps, OutOfMemory.
  CudaBlocks(const Driver& driver, int device, Budget& budget, size_t block_bytes,
             uint32_t num_blocks, bool poison);
  ~CudaBlocks() override;
  CudaBlocks(const CudaBlocks&) = delete;
  CudaBlocks& operator=(const CudaBlocks&) = delete;

  std::byte* reserve(size_t bytes) override;
  /// Poisons in stream order.
  void map(uint32_t block, std::byte* address, Stream& user) override;
  bool keep_addresses() const override { return true; }
  bool lies_at(uint32_t block, const std::byte* address) const override;
  size_t block_bytes() const override { return block_bytes_; }
  uint32_t num_blocks() const override { return num_blocks_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Range {
    CUdeviceptr begin = 0;
    std::vector<uint32_t> occupants;  // the block at each place, or kNone
  };

  /// Makes the device the calling thread's: the driver's calls are made in its context.
  void enter() const;
  void check_granularity() const;
  void take_blocks();
  void release_blocks() noexcept;
  /// Who lies at a block-aligned place of a reserved range. Throws LogicError where it is no such
  /// place.
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

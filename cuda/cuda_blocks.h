// Blocks of the CUDA backend: physical allocations, taken when made, mapped where they are wanted.
//
// map() unmaps a block from where it lies, and whichever block lies where it goes, then maps it.
// It runs on the caller's thread and blocks no stream, but the driver may wait in it for work that
// was submitted before; what that costs beside running kernels has not been measured on a GPU yet.
// Thread-safety: every method may be called from any thread.
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
  void map(uint32_t block, std::byte* address) override;
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
  /// Who lies at a block-aligned place of a reserved range; null where it is no such place.
  uint32_t* occupant_at(CUdeviceptr address);
  void unmap(uint32_t block);
  void map_at(uint32_t block, CUdeviceptr address);

  const Driver& driver_;
  const int device_;
  Budget& budget_;
  const size_t block_bytes_;
  const uint32_t num_blocks_;
  const bool poison_;

  std::mutex mutex_;
  std::vector<CUmemGenericAllocationHandle> handles_;
  std::vector<Range> ranges_;
  std::vector<CUdeviceptr> places_;  // where each block lies, 0: nowhere
};

}  // namespace ebb

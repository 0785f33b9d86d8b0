// The CUDA backend: one GPU, and the host memory whose bytes are copied to and from this GPU.
//
// The budget of MemoryKind::Device is enforced to the byte, as on the host. The default budget is
// the free memory of the GPU less a margin for the driver and its libraries
// (device/driver_memory.h). Before step 0 the
// program allocates all that it needs. After that nothing is allocated, and no call waits for the
// whole device. Thread-safe, as Device. A device must outlive its streams, events, blocks and
// buffers.
#pragma once

#include <atomic>
#include <memory>
#include <string_view>

#include "cuda/cuda_context.h"
#include "cuda/profiler_ranges.h"
#include "device/budget.h"
#include "device/kernels.h"
#include "device/workspace.h"
#include "system/clock.h"

namespace ebb {

class CudaDevice final : public Device {
 public:
  /// Throws ConfigError if the GPU does not exist or Ebb cannot run on it (check_gpu() in gpus.h),
  /// if the options ask for an emulated link, or if they ask for cuDNN and it is missing.
  explicit CudaDevice(const DeviceOptions& options);
  ~CudaDevice() override;

  const DeviceInfo& info() const override { return info_; }

  Buffer allocate(MemoryKind kind, size_t bytes, std::string_view tag) override;
  Buffer share(std::byte* memory, size_t bytes) override;
  std::unique_ptr<Blocks> create_blocks(size_t block_bytes, uint32_t num_blocks) override;
  void reserve_workspace(size_t bytes) override;
  MemoryName memory_name(const Buffer& buffer) override;
  std::shared_ptr<const std::byte> open_memory(const MemoryName& name) override;

  std::unique_ptr<Stream> create_stream(StreamKind role) override;
  std::unique_ptr<Event> create_event() override;
  Kernels& kernels() override { return *kernels_; }
  void block_submitting_thread(bool in_place) noexcept override {
    context_.blocks_submitting_thread = in_place || context_.always_blocks_submitting_thread;
  }

  size_t used_bytes() const override { return budget_.used_bytes(); }
  size_t peak_bytes() const override { return budget_.peak_bytes(); }
  size_t pinned_bytes() const override;
  size_t staged_bytes() const override;
  bool pinning_refused() const override;
  uint64_t num_allocations() const override { return num_allocations_; }
  double now_s() const override { return steady_now_s(); }

  void begin_range(const RangeName& name) noexcept override { ranges_.begin(name); }
  void end_range() noexcept override { ranges_.end(); }

 protected:
  void free(MemoryKind kind, std::byte* data, size_t bytes) noexcept override;

 private:
  std::byte* take_device_memory(size_t bytes, std::string_view tag);
  std::byte* take_pinned_memory(size_t bytes, std::string_view tag);
  std::byte* take(MemoryKind kind, size_t bytes, std::string_view tag);

  CudaContext context_;
  const DeviceInfo info_;
  const bool poison_;
  const ProfilerRanges ranges_;
  Budget budget_;
  std::atomic<uint64_t> num_allocations_ = 0;
  Workspace workspace_;
  std::unique_ptr<Kernels> kernels_;  // uses workspace_
};

}  // namespace ebb

// The host backend: the reference, and the default without a GPU.
//
// Each stream is a thread, and events order the streams. The budget of MemoryKind::Device is exact
// to the byte. Copies can run at the pace of an emulated link. Thread-safety: as Device. A device
// must outlive its streams, events, blocks and buffers. All kernels of the compute stream share the
// workspace, so reserve_workspace() is called only while the stream is idle.
#pragma once

#include <atomic>
#include <memory>
#include <string_view>

#include "device/backends.h"
#include "device/budget.h"
#include "device/host/host_link.h"
#include "device/kernels.h"
#include "system/clock.h"
#include "system/thread_team.h"

namespace ebb {

class HostDevice final : public Device {
 public:
  explicit HostDevice(const DeviceOptions& options);
  ~HostDevice() override;

  const DeviceInfo& info() const override { return info_; }

  Buffer allocate(MemoryKind kind, size_t bytes, std::string_view tag) override;
  std::unique_ptr<Blocks> create_blocks(size_t block_bytes, uint32_t num_blocks) override;
  void reserve_workspace(size_t bytes) override;

  std::unique_ptr<Stream> create_stream(StreamKind role) override;
  std::unique_ptr<Event> create_event() override;
  Kernels& kernels() override { return *kernels_; }

  size_t used_bytes() const override { return budget_.used_bytes(); }
  size_t peak_bytes() const override { return budget_.peak_bytes(); }
  uint64_t num_allocations() const override { return num_allocations_; }
  double now_s() const override { return steady_now_s(); }

 protected:
  void free(MemoryKind kind, std::byte* data, size_t bytes) noexcept override;

 private:
  std::byte* allocate_memory(size_t bytes, std::string_view tag);
  void free_memory(std::byte* data, size_t bytes) noexcept;

  const DeviceInfo info_;
  const bool poison_;
  Budget budget_;
  Faults faults_;
  std::atomic<uint64_t> num_allocations_ = 0;
  Workspace workspace_;
  Link load_;
  Link store_;
  ThreadTeam team_;
  std::unique_ptr<Kernels> kernels_;  // uses team_ and workspace_
};

}  // namespace ebb

// The simulated device has neither memory nor compute. It counts the cost of operations.
//
// Addresses are numbers that are never accessed. The budget is enforced as on a real device. Each
// stream has a virtual time. A copy or a call advances this time by its cost at the given rates (0:
// no time). A wait advances the time of a stream to the time of the event. Host threads take no
// time.
//
// Thread-safety: as Device.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include "device/backends.h"
#include "device/budget.h"
#include "device/kernels.h"
#include "system/thread_team.h"

namespace ebb {

class SimDevice final : public Device {
 public:
  /// Counts the kernels of the device that the profile describes, which differ in their workspace:
  /// those of the host if its kind is Sim.
  explicit SimDevice(const DeviceOptions& options = {});
  ~SimDevice() override;

  /// Sets the rates of later calls. A call takes the longer of its arithmetic and its memory
  /// traffic.
  void set_rate(double flops_per_s, double bytes_per_s);
  /// The flops and bytes of all calls, and the largest workspace of a call.
  Cost total() const;
  /// The same sums since the last take().
  Cost take();
  uint64_t num_calls() const;

  const DeviceInfo& info() const override { return info_; }
  Buffer allocate(MemoryKind kind, size_t bytes, std::string_view tag) override;
  std::unique_ptr<Blocks> create_blocks(size_t block_bytes, uint32_t num_blocks) override;
  void reserve_workspace(size_t bytes) override;
  std::unique_ptr<Stream> create_stream(StreamKind role) override;
  std::unique_ptr<Event> create_event() override;
  Kernels& kernels() override { return *kernels_; }
  size_t used_bytes() const override { return budget_.used_bytes(); }
  size_t peak_bytes() const override { return budget_.peak_bytes(); }
  uint64_t num_allocations() const override;
  /// The latest time that any stream has reached.
  double now_s() const override;

 protected:
  void free(MemoryKind kind, std::byte* data, size_t bytes) noexcept override;

 private:
  friend class SimStream;
  friend class SimEvent;
  friend class SimBlocks;

  std::byte* take_addresses(size_t bytes);
  /// Return the duration of the operation in seconds.
  double add_call(const Cost& cost);
  double copy_duration_s(size_t bytes, CopyKind kind) const;
  void advance_clock(double time_s);

  const DeviceInfo info_;
  Budget budget_;
  Faults faults_;
  ThreadTeam team_;  // runs nothing; gives kernels the number of threads
  Workspace workspace_;
  std::unique_ptr<Kernels> kernels_;

  mutable std::mutex mutex_;
  uintptr_t next_address_;
  size_t workspace_bytes_ = 0;
  uint64_t num_allocations_ = 0;
  uint64_t num_calls_ = 0;
  Cost total_;
  Cost since_take_;
  ComputeRates rates_;
  double now_s_ = 0;
};

}  // namespace ebb

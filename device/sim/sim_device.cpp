#include "device/sim/sim_device.h"

#include <algorithm>
#include <string>
#include <utility>

#include "device/backends.h"
#include "device/errors.h"
#include "device/sim/sim_stream.h"
#include "system/thread_team.h"

namespace ebb {
namespace {

/// A range of addresses that Linux does not use for the memory of a process.
constexpr uintptr_t kFirstAddress = uintptr_t{1} << 44;
constexpr uintptr_t kLastAddress = uintptr_t{1} << 46;
constexpr size_t kAlignment = size_t{2} << 20;

void add_cost(Cost& sum, const Cost& cost) {
  sum.flops += cost.flops;
  sum.narrow_flops += cost.narrow_flops;
  sum.attention_flops += cost.attention_flops;
  sum.attention_backward_flops += cost.attention_backward_flops;
  sum.vector_flops += cost.vector_flops;
  ++sum.num_kernels;
  sum.bytes += cost.bytes;
  sum.workspace_bytes = std::max(sum.workspace_bytes, cost.workspace_bytes);
}

}  // namespace

/// Blocks without memory, with the checks of a real device.
class SimBlocks final : public Blocks {
 public:
  SimBlocks(SimDevice& device, size_t block_bytes, uint32_t num_blocks)
      : device_(device), block_bytes_(block_bytes), num_blocks_(num_blocks) {
    EBB_CHECK(block_bytes > 0, "a block has a size");
    device_.budget_.take(block_bytes * num_blocks, "blocks");
  }
  ~SimBlocks() override { device_.budget_.give_back(block_bytes_ * num_blocks_); }

  std::byte* reserve(size_t bytes) override {
    const size_t num_places = std::max<size_t>((bytes + block_bytes_ - 1) / block_bytes_, 1);
    return device_.take_addresses(num_places * block_bytes_);
  }
  void map(uint32_t block, std::byte*, Stream&) override {
    EBB_CHECK(block < num_blocks_, "there is no block " + std::to_string(block));
  }
  size_t block_bytes() const override { return block_bytes_; }
  uint32_t num_blocks() const override { return num_blocks_; }

 private:
  SimDevice& device_;
  const size_t block_bytes_;
  const uint32_t num_blocks_;
};

namespace {

/// If this build has no CUDA backend, the kernels of the host replace those of a GPU, so that plans
/// for a GPU can still be made.
std::unique_ptr<Kernels> counting_kernels(const DeviceOptions& options, ThreadTeam& team,
                                          const Workspace& workspace) {
  if (options.profile.kind == DeviceKind::Cuda) {
    const auto attention = options.profile.attention.value_or(AttentionKernels::Cudnn);
    if (auto kernels = create_counting_cuda_kernels(attention)) return kernels;
  }
  return create_host_kernels(team, workspace, Arithmetic::Fp32);
}

}  // namespace

SimDevice::SimDevice(const DeviceOptions& options)
    : info_{.profile = {.kind = DeviceKind::Sim,
                        .num_threads = std::max(1, options.profile.num_threads)},
            .name = "simulated",
            .memory_bytes = options.memory_bytes,
            .load_bytes_per_s = options.load_bytes_per_s,
            .store_bytes_per_s = options.store_bytes_per_s},
      budget_(options.memory_bytes),
      faults_(options.fault),
      team_(info_.profile.num_threads),
      kernels_(counting_kernels(options, team_, workspace_)),
      next_address_(kFirstAddress) {}

SimDevice::~SimDevice() = default;

void SimDevice::set_rate(double flops_per_s, double bytes_per_s) {
  std::lock_guard lock(mutex_);
  rates_ = {flops_per_s, bytes_per_s};
}

Cost SimDevice::total() const {
  std::lock_guard lock(mutex_);
  return total_;
}

Cost SimDevice::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(since_take_, Cost{});
}

uint64_t SimDevice::num_calls() const {
  std::lock_guard lock(mutex_);
  return num_calls_;
}

uint64_t SimDevice::num_allocations() const {
  std::lock_guard lock(mutex_);
  return num_allocations_;
}

double SimDevice::now_s() const {
  std::lock_guard lock(mutex_);
  return now_s_;
}

std::byte* SimDevice::take_addresses(size_t bytes) {
  std::lock_guard lock(mutex_);
  const uintptr_t address = next_address_;
  EBB_CHECK(bytes < kLastAddress - address, "the simulated device has no addresses left");
  next_address_ += (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  return reinterpret_cast<std::byte*>(address);
}

Buffer SimDevice::allocate(MemoryKind kind, size_t bytes, std::string_view tag) {
  faults_.check_allocation("simulated", bytes, budget_, tag);
  if (kind == MemoryKind::Device) budget_.take(bytes, tag);
  std::byte* address = take_addresses(bytes);
  std::lock_guard lock(mutex_);
  ++num_allocations_;
  return Buffer(this, kind, address, bytes);
}

void SimDevice::free(MemoryKind kind, std::byte*, size_t bytes) noexcept {
  if (kind == MemoryKind::Device) budget_.give_back(bytes);
}

std::unique_ptr<Blocks> SimDevice::create_blocks(size_t block_bytes, uint32_t num_blocks) {
  faults_.check_allocation("simulated", block_bytes * num_blocks, budget_, "blocks");
  auto blocks = std::make_unique<SimBlocks>(*this, block_bytes, num_blocks);
  std::lock_guard lock(mutex_);
  ++num_allocations_;
  return blocks;
}

void SimDevice::reserve_workspace(size_t bytes) {
  faults_.check_allocation("simulated", bytes, budget_, "workspace");
  std::lock_guard lock(mutex_);
  if (bytes <= workspace_bytes_) return;
  budget_.take(bytes - workspace_bytes_, "workspace");
  workspace_bytes_ = bytes;
  ++num_allocations_;
}

std::unique_ptr<Stream> SimDevice::create_stream(StreamKind) {
  return std::make_unique<SimStream>(*this);
}

std::unique_ptr<Event> SimDevice::create_event() { return std::make_unique<SimEvent>(*this); }

double SimDevice::add_call(const Cost& cost) {
  std::lock_guard lock(mutex_);
  ++num_calls_;
  add_cost(total_, cost);
  add_cost(since_take_, cost);
  return rates_.seconds(cost);
}

double SimDevice::copy_duration_s(size_t bytes, CopyKind kind) const {
  std::lock_guard lock(mutex_);
  const double rate = kind == CopyKind::Load    ? info_.load_bytes_per_s
                      : kind == CopyKind::Store ? info_.store_bytes_per_s
                                                : rates_.bytes_per_s / 2;  // read and written
  return rate > 0 ? static_cast<double>(bytes) / rate : 0;
}

void SimDevice::advance_clock(double time_s) {
  std::lock_guard lock(mutex_);
  now_s_ = std::max(now_s_, time_s);
}

std::unique_ptr<Device> create_sim_device(const DeviceOptions& options) {
  return std::make_unique<SimDevice>(options);
}

}  // namespace ebb

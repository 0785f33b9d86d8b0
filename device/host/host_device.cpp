#include "device/host/host_device.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <string>
#include <utility>

#include "device/errors.h"
#include "device/host/host_blocks.h"
#include "device/host/host_event.h"
#include "device/host/host_stream.h"
#include "system/cores.h"
#include "system/pages.h"

namespace ebb {
namespace {

/// Allocations of this size or more are mapped in whole pages and unmapped when they are freed.
constexpr size_t kMappedBytes = size_t{1} << 20;
constexpr size_t kAlignment = 64;

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

DeviceInfo describe(const DeviceOptions& options) {
  const int requested = options.profile.num_threads;
  const int num_threads = requested > 0 ? requested : num_usable_cores();
  return {.profile = {.kind = DeviceKind::Host, .num_threads = num_threads},
          .name = cpu_name() + ", " + std::to_string(num_threads) +
                  (num_threads == 1 ? " thread" : " threads"),
          .memory_bytes = options.memory_bytes,
          .load_bytes_per_s = options.load_bytes_per_s,
          .store_bytes_per_s = options.store_bytes_per_s,
          .arithmetic = choose_arithmetic(options.arithmetic, this_processor()),
          .emulate_compute = options.emulate_compute};
}

size_t whole_pages(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

}  // namespace

HostDevice::HostDevice(const DeviceOptions& options)
    : info_(describe(options)),
      poison_(options.poison),
      budget_(options.memory_bytes),
      faults_(options.fault),
      load_(options.load_bytes_per_s),
      store_(options.store_bytes_per_s),
      team_(info_.profile.num_threads),
      kernels_(create_host_kernels(team_, workspace_, info_.arithmetic)) {}

HostDevice::~HostDevice() {
  if (workspace_.data != nullptr) free_memory(workspace_.data, workspace_.bytes);
}

std::byte* HostDevice::allocate_memory(size_t bytes, std::string_view tag) {
  if (bytes >= kMappedBytes) {
    std::byte* data = reserve_addresses(whole_pages(bytes));
    try {
      commit_memory(data, whole_pages(bytes), tag);
      touch_pages(data, bytes);
    } catch (...) {
      release_addresses(data, whole_pages(bytes));
      throw;
    }
    return data;
  }
  void* data = nullptr;
  if (posix_memalign(&data, kAlignment, bytes > 0 ? bytes : 1) != 0) throw std::bad_alloc();
  std::memset(data, 0, bytes);
  return static_cast<std::byte*>(data);
}

void HostDevice::free_memory(std::byte* data, size_t bytes) noexcept {
  announce_write(data, bytes);
  if (bytes >= kMappedBytes) {
    release_addresses(data,
                      whole_pages(bytes));  // a later access faults, so poison is not needed
    return;
  }
  if (poison_) fill_poison(data, bytes);
  std::free(data);
}

Buffer HostDevice::allocate(MemoryKind kind, size_t bytes, std::string_view tag) {
  faults_.check_allocation(name_of(kind), bytes, budget_, tag);
  if (kind == MemoryKind::Device) budget_.take(bytes, tag);
  try {
    std::byte* data = allocate_memory(bytes, tag);
    ++num_allocations_;
    return Buffer(this, kind, data, bytes);
  } catch (...) {
    if (kind == MemoryKind::Device) budget_.give_back(bytes);
    throw;
  }
}

void HostDevice::free(MemoryKind kind, std::byte* data, size_t bytes) noexcept {
  if (kind == MemoryKind::Shared) return;
  free_memory(data, bytes);
  if (kind == MemoryKind::Device) budget_.give_back(bytes);
}

std::unique_ptr<Blocks> HostDevice::create_blocks(size_t block_bytes, uint32_t num_blocks) {
  EBB_CHECK(block_bytes > 0 && block_bytes % kPageBytes == 0,
            "a block of " + format_bytes(block_bytes) + " is not a multiple of 4 KiB");
  faults_.check_allocation("device", block_bytes * num_blocks, budget_, "blocks");
  auto blocks = std::make_unique<HostBlocks>(budget_, block_bytes, num_blocks, poison_);
  ++num_allocations_;
  return blocks;
}

void HostDevice::reserve_workspace(size_t bytes) {
  if (bytes <= workspace_.bytes) return;
  faults_.check_allocation("device", bytes, budget_, "workspace");
  const size_t more = bytes - workspace_.bytes;
  budget_.take(more, "workspace");
  std::byte* data = nullptr;
  try {
    data = allocate_memory(bytes, "workspace");
  } catch (...) {
    budget_.give_back(more);
    throw;
  }
  if (workspace_.data != nullptr) free_memory(workspace_.data, workspace_.bytes);
  workspace_ = {data, bytes};
  ++num_allocations_;
}

std::unique_ptr<Stream> HostDevice::create_stream(StreamKind role) {
  static constexpr const char* kNames[] = {"ebb compute", "ebb load",    "ebb store", "ebb update",
                                           "ebb send",    "ebb receive", "ebb fetch", "ebb parts"};
  static_assert(std::size(kNames) == kNumStreamKinds);
  HostStreamOptions options{
      .load = &load_, .store = &store_, .faults = &faults_, .name = kNames[static_cast<int>(role)]};
  if (role == StreamKind::Compute) options.emulated_rates = info_.emulate_compute;
  if (role == StreamKind::Update) options.queue_capacity = kQueueOfUpdates;
  return std::make_unique<HostStream>(options);
}

std::unique_ptr<Event> HostDevice::create_event() { return std::make_unique<HostEvent>(); }

std::unique_ptr<Device> create_host_device(const DeviceOptions& options) {
  return std::make_unique<HostDevice>(options);
}

}  // namespace ebb

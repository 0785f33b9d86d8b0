#include "tests/cuda_emulation/emulated_device.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "device/errors.h"
#include "system/tsan.h"
#include "tests/cuda_emulation/launch_queue.h"
#include "tests/cuda_emulation/stream_queue.h"

namespace ebb::emulation {
namespace {

struct Range {
  size_t bytes = 0;
  Kind kind = Kind::Device;
};

/// Global, because CUDA's interface has no object for the state.
struct State {
  std::mutex mutex;
  std::map<uintptr_t, Range> ranges;  // by begin
  size_t device_bytes = 0, physical_bytes = 0, pinned_bytes = 0;
  std::atomic<bool> lost = false;
  std::atomic<uint32_t> contexts = 0;
  std::string failure;
  std::atomic<int64_t> streams = 0, events = 0, blocks = 0, reservations = 0;
};

State& state() {
  static State one;
  return one;
}

thread_local cudaError_t last_error = cudaSuccess;
thread_local int device_of_thread = 0;
thread_local bool device_is_set = false;

uintptr_t address_of(const void* memory) { return reinterpret_cast<uintptr_t>(memory); }

/// Do adjacent ranges that `accepts` cover all of it?
template <class Accepts>
bool is_covered(const void* memory, size_t bytes, const Accepts& accepts) {
  State& s = state();
  TsanHiddenLock lock(s.mutex);
  uintptr_t at = address_of(memory);
  const uintptr_t end = at + bytes;
  do {
    auto next = s.ranges.upper_bound(at);
    if (next == s.ranges.begin()) return false;
    const auto& [begin, range] = *std::prev(next);
    if (at >= begin + range.bytes || !accepts(range.kind)) return false;
    at = begin + range.bytes;
  } while (at < end);
  return true;
}

}  // namespace

Settings& settings() {
  static Settings one;
  return one;
}

bool add_range(const void* memory, size_t bytes, Kind kind) {
  State& s = state();
  TsanHiddenLock lock(s.mutex);
  if (!s.ranges.emplace(address_of(memory), Range{bytes, kind}).second) return false;
  if (kind == Kind::Device) s.device_bytes += bytes;
  if (kind == Kind::Pinned) s.pinned_bytes += bytes;
  return true;
}

size_t remove_range(const void* memory, Kind kind) {
  State& s = state();
  TsanHiddenLock lock(s.mutex);
  const auto found = s.ranges.find(address_of(memory));
  EBB_CHECK(found != s.ranges.end() && found->second.kind == kind,
            "freeing, unregistering or unmapping memory that is no such memory");
  const size_t bytes = found->second.bytes;
  s.ranges.erase(found);
  if (kind == Kind::Device) s.device_bytes -= bytes;
  if (kind == Kind::Pinned) s.pinned_bytes -= bytes;
  return bytes;
}

bool is_device_memory(const void* memory, size_t bytes) {
  return is_covered(memory, bytes, [](Kind kind) { return kind != Kind::Pinned; });
}

bool is_in_one_range(const void* memory, size_t bytes) {
  State& s = state();
  TsanHiddenLock lock(s.mutex);
  const auto next = s.ranges.upper_bound(address_of(memory));
  if (next == s.ranges.begin()) return false;
  const auto& [begin, range] = *std::prev(next);
  return address_of(memory) + bytes <= begin + range.bytes;
}

bool is_pinned_memory(const void* memory, size_t bytes) {
  return is_covered(memory, bytes, [](Kind kind) { return kind == Kind::Pinned; });
}

bool device_may_touch(const void* memory, size_t bytes) {
  return is_device_memory(memory, bytes) || is_pinned_memory(memory, bytes);
}

size_t used_device_bytes() {
  State& s = state();
  TsanHiddenLock lock(s.mutex);
  return s.device_bytes + s.physical_bytes;
}

size_t pinned_bytes() {
  State& s = state();
  TsanHiddenLock lock(s.mutex);
  return s.pinned_bytes;
}

Live live() {
  State& s = state();
  TsanHiddenLock lock(s.mutex);
  return {.device_bytes = s.device_bytes + s.physical_bytes,
          .pinned_bytes = s.pinned_bytes,
          .num_streams = s.streams,
          .num_events = s.events,
          .num_blocks = s.blocks,
          .num_reservations = s.reservations};
}

void count_stream(int64_t more) { state().streams.fetch_add(more, std::memory_order_relaxed); }
void count_event(int64_t more) { state().events.fetch_add(more, std::memory_order_relaxed); }
void count_block(int64_t more) { state().blocks.fetch_add(more, std::memory_order_relaxed); }
void count_reservation(int64_t more) {
  state().reservations.fetch_add(more, std::memory_order_relaxed);
}

int current_device() { return device_of_thread; }
bool has_set_device() { return device_is_set; }
void set_current_device(int device) {
  device_of_thread = device;
  device_is_set = true;
}

uint32_t contexts() { return state().contexts.load(std::memory_order_relaxed); }
void forget_contexts() { state().contexts = 0; }
void make_context() {
  state().contexts.fetch_or(uint32_t{1} << current_device(), std::memory_order_relaxed);
}

bool is_refused(std::string_view call) {
  static constexpr std::string_view kNeedNone[] = {"cudaSetDevice", "cudaDeviceGetAttribute",
                                                   "cudaGetDeviceProperties"};
  if (std::ranges::find(kNeedNone, call) == std::end(kNeedNone)) make_context();
  return settings().refuses && settings().refuses(call);
}

void add_physical(size_t bytes) {
  State& s = state();
  TsanHiddenLock lock(s.mutex);
  s.physical_bytes += bytes;
}

void remove_physical(size_t bytes) {
  State& s = state();
  TsanHiddenLock lock(s.mutex);
  s.physical_bytes -= bytes;
}

bool is_lost() { return state().lost.load(std::memory_order_relaxed); }

void lose_device(std::string why) noexcept {
  State& s = state();
  TsanHiddenLock lock(s.mutex);
  if (!s.lost) s.failure = std::move(why);
  s.lost = true;
}

std::string last_failure() {
  State& s = state();
  TsanHiddenLock lock(s.mutex);
  return s.failure;
}

void reset_device() {
  State& s = state();
  TsanHiddenLock lock(s.mutex);
  s.lost = false;
  s.failure.clear();
  forget_full_queues();
  last_error = cudaSuccess;
}

cudaError_t set_last_error(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t finish(cudaError_t status) {
  return set_last_error(is_lost() ? cudaErrorLaunchFailure : status);
}

}  // namespace ebb::emulation

cudaError_t cudaGetLastError() {
  using namespace ebb::emulation;
  if (is_lost()) return cudaErrorLaunchFailure;  // not cleared, as in CUDA
  return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
  using namespace ebb::emulation;
  return is_lost() ? cudaErrorLaunchFailure : last_error;
}

// The GPU that the emulation pretends to have, and what it knows of memory. For tests.
//
// Memory of the device is host memory. What CUDA leaves undefined, it makes a fault or a
// LogicError: blocks that are not mapped, and large memory that was freed, have no pages under
// them; a copy takes registered host memory on the one side and device memory on the other.
// Thread-safe.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ebb::emulation {

/// What a test may change, while no device exists. Sizes are bytes.
struct Settings {
  int num_devices = 1;
  int driver_version = 13000;  ///< 0: no driver
  int architecture = 90;
  size_t memory_bytes = size_t{4} << 30;
  size_t granularity = size_t{2} << 20;   ///< of blocks
  bool maps_memory = true;                ///< has blocks at all
  size_t pinnable_bytes = SIZE_MAX;       ///< what may be registered
  size_t pinnable_at_once = SIZE_MAX;     ///< what may be registered in one call
  std::string missing_driver_call = {};   ///< one that the driver does not have
  double copy_bytes_per_s = 0;            ///< of copies to and from the host; 0: at once
  bool is_profiled = false;               ///< a profiler watches
  bool has_epilogues = true;              ///< cuBLASLt knows products with something behind them
  std::string attention_library = {};     ///< its name; empty: there is none
  cudaError_t code_status = cudaSuccess;  ///< of looking for a kernel's code for this GPU
  /// Asked at every call that may be refused, from any thread; true: that one fails and does
  /// nothing. What only gives back is never refused.
  std::function<bool(std::string_view call)> refuses = {};
};
Settings& settings();

enum class Kind : uint8_t { Device, Block, Pinned };

/// Ranges of memory that the device knows.
void add_range(const void* memory, size_t bytes, Kind kind);
/// Throws LogicError where no range of the kind begins there; returns its size.
size_t remove_range(const void* memory, Kind kind);
/// Whether all of it lies in ranges of device memory, or all of it in pinned memory.
bool is_device_memory(const void* memory, size_t bytes);
bool is_pinned_memory(const void* memory, size_t bytes);
/// Whether one range has all of it: CUDA copies within one registration alone.
bool is_in_one_range(const void* memory, size_t bytes);
size_t used_device_bytes();
size_t pinned_bytes();
/// Physical memory under handles: counts as used.
void add_physical(size_t bytes);
void remove_physical(size_t bytes);

/// What there is now, of what a program has to give back.
struct Live {
  size_t device_bytes = 0, pinned_bytes = 0;
  int64_t num_streams = 0, num_events = 0, num_blocks = 0, num_reservations = 0;
  bool operator==(const Live&) const = default;
};
Live live();
/// Counts one that was made, or -1: given back.
void count_stream(int64_t more);
void count_event(int64_t more);
void count_block(int64_t more);
void count_reservation(int64_t more);

/// Which device's calls this thread makes (cudaSetDevice): 0 on a new thread, as CUDA has it. The
/// driver's calls ask for one that was set.
int current_device();
void set_current_device(int device);
bool has_set_device();
/// A bit for each device that calls have made a context on since forget_contexts(): CUDA makes it,
/// and takes memory for it, at a thread's first call of most kinds.
uint32_t contexts();
void forget_contexts();
/// What such a call does first; is_refused() is one for the calls that it is asked about.
void make_context();

/// cudaErrorLaunchFailure once the device is lost, else `status`; not success: the last error.
cudaError_t finish(cudaError_t status = cudaSuccess);
bool is_lost();
void lose_device(std::string why) noexcept;

/// Names of the ranges that the profiler was told of since this was last asked, of all threads.
std::vector<std::string> take_profile();
/// Of the calling thread.
int num_open_ranges();

/// The driver's calls by name; null where there is none.
void* driver_call(const std::string& name);

}  // namespace ebb::emulation

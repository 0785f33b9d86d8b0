// The emulated GPU: its properties, and the ranges of memory that it knows. For tests.
//
// Device memory is host memory. Where CUDA's behaviour is undefined, the emulation faults or throws
// LogicError: blocks that are not mapped and large memory that was freed have no pages, and a copy
// needs registered host memory on one side and device memory on the other. Thread-safe.
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

/// What blocks while a thread stands in a call because the queue of its stream is full.
enum class FullQueue : uint8_t {
  /// cudaEventCreate() of other threads, as queue_probe saw on an H200.
  BlocksEventCreation,
  /// All that a lock for readers and writers excludes. Submissions and questions about events share
  /// the lock; mapping memory and making events take it alone, and the former wait if one of the
  /// latter waits. No driver is known to be so strict.
  BlocksDriver,
};

/// Settings that a test may change while no device exists. Sizes are bytes.
struct Settings {
  int num_devices = 1;
  int driver_version = 13000;  ///< 0: no driver
  int architecture = 90;
  size_t memory_bytes = size_t{4} << 30;
  size_t granularity = size_t{2} << 20;  ///< of blocks
  bool maps_memory = true;               ///< supports virtual memory
  bool has_nvlink = true;                ///< between all GPUs
  size_t pinnable_bytes = SIZE_MAX;      ///< what may be registered
  size_t pinnable_at_once = SIZE_MAX;    ///< limit of one registration
  std::string missing_driver_call = {};  ///< a function that the driver lacks
  double copy_bytes_per_s = 0;           ///< of copies to and from the host; 0: no limit
  int queue_entries = 1020;              ///< that fit into the queue of a stream, as on an H200
  int queue_records = 56;                ///< of them, records of events with cudaEventBlockingSync
  FullQueue full_queue = FullQueue::BlocksEventCreation;
  bool is_profiled = false;               ///< a profiler runs
  bool has_epilogues = true;              ///< cuBLASLt has epilogues
  std::string attention_library = {};     ///< its name; empty: no library
  bool attention_has_kernels = true;      ///< the library computes every attention
  cudaError_t code_status = cudaSuccess;  ///< status of the search for code for this GPU
  /// Called at every call that can fail, from any thread. If it returns true, the call fails and
  /// does nothing. Calls that only free something never fail.
  std::function<bool(std::string_view call)> refuses = {};
};
Settings& settings();

enum class Kind : uint8_t { Device, Block, Pinned };

/// Adds a range of memory that the device knows. Returns false if one begins there already.
bool add_range(const void* memory, size_t bytes, Kind kind);
/// Removes a range and returns its size. Throws LogicError if no range of this kind begins at
/// `memory`.
size_t remove_range(const void* memory, Kind kind);
/// Is all of it in ranges of device memory? The second function: in pinned memory?
bool is_device_memory(const void* memory, size_t bytes);
bool is_pinned_memory(const void* memory, size_t bytes);
/// Is all of it in one range? CUDA copies only within one registration.
bool is_in_one_range(const void* memory, size_t bytes);
size_t used_device_bytes();
size_t pinned_bytes();
/// Adds physical memory of handles, which counts as used.
void add_physical(size_t bytes);
void remove_physical(size_t bytes);

/// The number of objects that exist now and that a program must free.
struct Live {
  size_t device_bytes = 0, pinned_bytes = 0;
  int64_t num_streams = 0, num_events = 0, num_blocks = 0, num_reservations = 0;
  bool operator==(const Live&) const = default;
};
Live live();
/// Counts a stream that was created (1) or destroyed (-1).
void count_stream(int64_t more);
void count_event(int64_t more);
void count_block(int64_t more);
void count_reservation(int64_t more);

/// The current device of this thread (cudaSetDevice), 0 in a new thread as in CUDA. Driver calls
/// need a device that was set.
int current_device();
void set_current_device(int device);
bool has_set_device();
/// One bit for each device on which calls have created a context since forget_contexts(). CUDA
/// creates the context, and allocates memory for it, at a thread's first call of most kinds.
uint32_t contexts();
void forget_contexts();
/// Creates a context if there is none. Every such call does this first; is_refused() does it for
/// the calls that can fail.
void make_context();

/// Returns cudaErrorLaunchFailure if the device is lost, and `status` otherwise. An error also
/// becomes the last error.
cudaError_t finish(cudaError_t status = cudaSuccess);
bool is_lost();
void lose_device(std::string why) noexcept;

/// The names of the ranges that all threads began since the last call.
std::vector<std::string> take_profile();
/// The number of open ranges of the calling thread.
int num_open_ranges();

/// A driver function by its name, or null.
void* driver_call(const std::string& name);

}  // namespace ebb::emulation

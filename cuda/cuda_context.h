// The state that the streams, events and blocks of one CUDA device share. It outlives all of them.
//
// Thread-safe: every method may be called from any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/data_error.h"
#include "cuda/driver.h"
#include "cuda/failures.h"
#include "cuda/handles.h"
#include "device/budget.h"

namespace ebb {

/// Words of pinned memory. A stream waits for a word to reach a number, and a host thread writes
/// it. take() returns a word with the value 0.
class Flags {
 public:
  /// Allocates enough words for the events of almost every program. Later, the training state may
  /// have taken all memory that can be pinned. `node`: NUMA node of the memory, or -1.
  explicit Flags(int node) : node_(node) { add_slab(); }
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  /// Returns an unused word. Allocates memory only if no word is left.
  uint32_t* take();
  void give_back(uint32_t* flag) noexcept;

 private:
  static constexpr size_t kSlabBytes = size_t{256} << 10;
  void add_slab();

  const int node_;
  std::mutex mutex_;
  std::vector<std::byte*> slabs_;
  std::vector<uint32_t*> free_;
};

/// Converts the times of the GPU's events to the clock of steady_now_s(). CUDA gives only the
/// difference of two events, in milliseconds as a 32-bit float. So a time is computed from an
/// anchor: an event, at most some seconds old, that was read on both clocks while its stream was
/// idle. The error is some microseconds.
class GpuClock {
 public:
  /// For the current device of this thread.
  GpuClock();

  /// Makes a new anchor if the anchor is old. This blocks for some tens of microseconds, so it is
  /// called only between steps.
  void refresh();
  /// The time of an event, in seconds. REQUIRES: the event was recorded and is done. Throws
  /// DeviceError.
  double time_s(cudaEvent_t event) const;

 private:
  void anchor();

  OwnedStream stream_;
  OwnedEvent anchor_;
  mutable std::mutex mutex_;
  double anchor_s_ = 0;
};

/// A DataError in pinned memory.
class PinnedDataError {
 public:
  explicit PinnedDataError(int node);
  ~PinnedDataError();
  PinnedDataError(const PinnedDataError&) = delete;
  PinnedDataError& operator=(const PinnedDataError&) = delete;
  DataError* get() const { return error_; }

 private:
  DataError* error_;
};

class HomeMemory;

struct CudaContext {
  /// Throws ConfigError, DeviceError.
  explicit CudaContext(const DeviceOptions& options);
  ~CudaContext();

  /// Makes the device current in this thread; in a new thread GPU 0 is current. Called before every
  /// CUDA call that depends on the device. Throws DeviceError.
  void enter() const;
  /// The same for code that must not throw. Returns CUDA's status, and clears CUDA's last error.
  cudaError_t try_enter() const noexcept;

  const int device;
  const int node;  ///< NUMA node of the GPU, -1: unknown
  const Driver driver;
  Faults faults;
  const std::shared_ptr<Failures> failures_of_process = Failures::of_process();
  Failures& failures = *failures_of_process;
  Flags flags;
  GpuClock clock;
  /// EBB_BLOCK_SUBMITTING_THREAD=1 in the environment: no stream waits for a host thread. For tools
  /// that let a launch return only when its kernel is done, such as compute-sanitizer.
  const bool always_blocks_submitting_thread;
  std::atomic<bool> blocks_submitting_thread = always_blocks_submitting_thread;
  const PinnedDataError data_error;
  const std::unique_ptr<HomeMemory> home;  // last: its staging rings use the members above
};

}  // namespace ebb

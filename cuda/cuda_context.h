// What the streams, events and blocks of one CUDA device share. Outlives all of them.
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

/// Words of pinned memory through which host threads let streams go on. Each is 0 when given out.
class Flags {
 public:
  /// Takes the memory that nearly every program's events fit into: later it might all be a home's.
  explicit Flags(int node) : node_(node) { add_slab(); }
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  /// Allocates only where none is left.
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

/// The GPU's event times on the clock of steady_now_s(). Events give 32-bit milliseconds from one
/// another, so a time is taken from an anchor that is at most some seconds old: read at once by
/// both clocks while a stream is idle, right to within some microseconds.
class GpuClock {
 public:
  /// Of the GPU that this thread uses.
  GpuClock();

  /// Blocks for some tens of microseconds where the anchor is old: between steps only.
  void refresh();
  /// REQUIRES: the event was recorded and is done. Throws DeviceError.
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

  /// Makes the device this thread's: before any call that is made for a device, of which a new
  /// thread's are for GPU 0. Throws DeviceError.
  void enter() const;
  /// The same where nothing may be thrown. Returns what CUDA says, and leaves no error behind.
  cudaError_t try_enter() const noexcept;

  const int device;
  const int node;  ///< NUMA node of the GPU, -1: unknown
  const Driver driver;
  Faults faults;
  Failures failures;
  Flags flags;
  GpuClock clock;
  std::atomic<bool> blocks_submitting_thread = false;
  const PinnedDataError data_error;
  const std::unique_ptr<HomeMemory> home;  // last: its rings use the rest
};

}  // namespace ebb

// A device: memory with a budget, blocks that can be mapped at stable addresses, streams, events,
// kernels.
//
// Three kinds: host (reference backend), sim (no memory, no compute: counts), cuda. Callers never
// include a backend's header; create_device() is all they need.
//
// Thread-safety: every method may be called from any thread. Memory is taken before step 0:
// allocate() and create_blocks() throw OutOfMemory where the budget would be exceeded, exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/arithmetic.h"
#include "device/stream.h"

namespace ebb {

class Kernels;

enum class DeviceKind : uint8_t { Host, Sim, Cuda };

enum class MemoryKind : uint8_t {
  Device,    ///< counts against the device's budget
  Pinned,    ///< host memory that copies may touch asynchronously
  Pageable,  ///< host memory
  /// Host memory that copies alone touch, asynchronously: pinned from its beginning as far as that
  /// may be, and beyond through a ring of pinned memory.
  Home,
};

std::string_view name_of(MemoryKind kind);

class Device;

/// Owns a range of memory; zero-filled when made, freed when destroyed. Movable.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device* device, MemoryKind kind, std::byte* data, size_t bytes)
      : device_(device), kind_(kind), data_(data), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  MemoryKind kind() const { return kind_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  Device* device_ = nullptr;
  MemoryKind kind_ = MemoryKind::Pageable;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Physical blocks of one size and the address ranges they are mapped into.
///
/// A reserved range is addresses only: touching a page with no block under it faults. map() puts a
/// block at a block-aligned place of a range, in place of whichever lies there. Its content is then
/// undefined for what `user` is given from then on, the first stream to use the block there
/// (poisoned where the device was told to); new work on it is submitted after map() has returned.
///
/// Some blocks keep their addresses: a block lies wherever it was mapped, until another comes
/// there. They may be mapped ahead, while work at an address they had before is still to be done:
/// the caller orders `user` behind that, and calls map() after the last work at *this* address is
/// done, unless the block lies there already. All others move: the caller calls map() only after
/// the last work on the block is done, too.
class Blocks {
 public:
  virtual ~Blocks() = default;
  /// Reserves addresses, rounded up to whole blocks; they stay reserved as long as the Blocks
  /// object lives.
  virtual std::byte* reserve(size_t bytes) = 0;
  virtual void map(uint32_t block, std::byte* address, Stream& user) = 0;
  virtual bool keep_addresses() const { return false; }
  /// Of blocks that keep their addresses.
  virtual bool lies_at(uint32_t /*block*/, const std::byte* /*address*/) const { return false; }
  virtual size_t block_bytes() const = 0;
  virtual uint32_t num_blocks() const = 0;
};

/// Whose attention. A library's is faster, rounds weights and gradients of scores to 16 bits before
/// they are multiplied, and takes more workspace.
enum class AttentionKernels : uint8_t { Ebb, Cudnn };

struct DeviceInfo {
  DeviceKind kind = DeviceKind::Host;
  std::string name;             ///< "AMD EPYC, 2 threads, AVX3"
  size_t memory_bytes = 0;      ///< the budget
  int num_threads = 1;          ///< host threads of kernels
  double load_bytes_per_s = 0;  ///< 0: not emulated or not measured
  double store_bytes_per_s = 0;
  Arithmetic arithmetic = Arithmetic::Fp32;            ///< host: of bf16 matrices
  AttentionKernels attention = AttentionKernels::Ebb;  ///< cuda; cuDNN's: where it has kernels
  /// A rehearsal: kernels compute nothing, and take no cores, but the time they would at these
  /// rates.
  std::optional<ComputeRates> emulate_compute = {};
};

/// A name for what a thread does, shown by a profiler: "forward attention", "load weights 7".
struct RangeName {
  std::string_view what, name;
  int64_t number = -1;  ///< -1: the name has no number
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;

  virtual Buffer allocate(MemoryKind kind, size_t bytes, std::string_view tag) = 0;
  virtual std::unique_ptr<Blocks> create_blocks(size_t block_bytes, uint32_t num_blocks) = 0;
  /// Scratch shared by all kernels of the compute stream; grows only here.
  virtual void reserve_workspace(size_t bytes) = 0;

  virtual std::unique_ptr<Stream> create_stream(StreamKind role) = 0;
  virtual std::unique_ptr<Event> create_event() = 0;
  virtual Kernels& kernels() = 0;
  /// Whether, from here on, the thread that makes a stream of a GPU wait for a host thread waits in
  /// its place; at first it does not. For when kernels are new to the device: it loads them when
  /// they are first launched, and may let all that it was given end before. And for when that host
  /// thread may itself wait for what is yet to be submitted: that may come behind the stream's wait
  /// in a queue that they share.
  virtual void block_submitting_thread(bool) noexcept {}

  /// Bytes of MemoryKind::Device taken now (buffers, blocks, workspace), and the most there ever
  /// were.
  virtual size_t used_bytes() const = 0;
  virtual size_t peak_bytes() const = 0;
  /// Host memory that is pinned now; a device whose copies need none has none.
  virtual size_t pinned_bytes() const { return 0; }
  /// Of MemoryKind::Home, what is not.
  virtual size_t staged_bytes() const { return 0; }
  /// Some of that although the limit (DeviceOptions::pinned_bytes) would allow it: the driver does
  /// not.
  virtual bool pinning_refused() const { return false; }
  /// Allocations of any kind since the device was made: must not change after set-up.
  virtual uint64_t num_allocations() const = 0;
  /// Seconds on the clock that Event::time_s() uses.
  virtual double now_s() const = 0;

  /// What the calling thread does, or submits, from here to its end_range(); ranges may lie in one
  /// another. Shown where a profiler watches a device that has one, else it is nothing.
  virtual void begin_range(const RangeName&) noexcept {}
  virtual void end_range() noexcept {}

 protected:
  friend class Buffer;
  virtual void free(MemoryKind kind, std::byte* data, size_t bytes) noexcept = 0;
};

/// A range that ends with its scope.
class ProfiledRange {
 public:
  ProfiledRange(Device& device, const RangeName& name) : device_(device) {
    device_.begin_range(name);
  }
  ~ProfiledRange() { device_.end_range(); }
  ProfiledRange(const ProfiledRange&) = delete;
  ProfiledRange& operator=(const ProfiledRange&) = delete;

 private:
  Device& device_;
};

/// What a fault injector is asked about; the n-th question answered with true fails.
enum class FaultSite : uint8_t { Allocation, Copy, Launch };

struct DeviceOptions {
  DeviceKind kind = DeviceKind::Host;
  size_t memory_bytes = SIZE_MAX;  ///< budget for MemoryKind::Device
  int num_threads = 0;             ///< host kernels; 0: one per core this process may use
  double load_bytes_per_s = 0;     ///< host: emulated link, 0 = as fast as memory
  double store_bytes_per_s = 0;
  std::optional<Arithmetic> arithmetic = {};  ///< host: of bf16 matrices; none: the faster one
  /// Host: pretends to be a device that computes at these rates. What kernels should have written
  /// stays as it was: zeros, or what copies brought.
  std::optional<ComputeRates> emulate_compute = {};
  bool poison = false;  ///< fill freed memory and blocks that are mapped with NaN patterns
  int cuda_index = 0;
  /// Cuda; none: cuDNN's where it is found. Sim: counted; none: those that take more workspace.
  std::optional<AttentionKernels> attention = {};
  size_t pinned_bytes = SIZE_MAX;  ///< cuda: host memory that may be pinned
  /// Cuda: the most of a home that is pinned in one call; whole pages. Drivers refuse half a TiB
  /// (docs/decisions.md).
  size_t pinned_piece_bytes = size_t{64} << 30;
  /// Sim: the kind of device whose kernels it counts; they differ in the workspace they ask for.
  DeviceKind counted_kind = DeviceKind::Host;
  /// Tests: called at every allocation, copy and launch; true makes that one fail.
  std::function<bool(FaultSite)> fault = {};
};

/// Throws ConfigError where the kind is not built in or no such device is here.
std::unique_ptr<Device> create_device(const DeviceOptions& options = {});

/// One line for each CUDA device found ("NVIDIA H200, 139 GiB, sm_90"), or why there is none.
struct CudaProbe {
  std::vector<std::string> devices;
  std::string
      note;  ///< "built without the CUDA toolkit", "no driver", ...; empty when there are devices
  std::string attention_library;  ///< "cuDNN 9.19.0"; empty: none is found, or no device
};
CudaProbe probe_cuda();

}  // namespace ebb

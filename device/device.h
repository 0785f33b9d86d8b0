// A device: memory with a budget, blocks that can be mapped at stable addresses, streams, events,
// kernels.
//
// There are three kinds: host is the reference backend, sim only counts and has neither memory nor
// compute, cuda is a GPU. Callers include no header of a backend; they call create_device().
//
// Thread-safety: every method may be called from any thread. All memory is allocated before step 0.
// allocate() and create_blocks() throw OutOfMemory if the allocation would exceed the budget; the
// budget is exact to the byte.
#pragma once

#include <array>
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

/// Names memory of a device for the devices of other ranks, also in other processes. It can be sent
/// to them as bytes.
struct MemoryName {
  std::array<std::byte, 128> bytes = {};
};

enum class DeviceKind : uint8_t { Host, Sim, Cuda };

enum class MemoryKind : uint8_t {
  Device,    ///< counts against the device's budget
  Pinned,    ///< host memory that asynchronous copies can access
  Pageable,  ///< host memory
  /// Host memory that only asynchronous copies access. As many bytes from its beginning as the
  /// limit allows are pinned; copies of the other bytes pass through a ring of pinned memory.
  Home,
  Shared,  ///< as Home, in memory that the caller owns and that other processes may share
};

std::string_view name_of(MemoryKind kind);

class Device;

/// Owns a range of memory; zero-filled when made, freed when destroyed. Movable. The device must
/// outlive it. Buffers of a sim device have addresses but no memory.
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
/// A reserved range has addresses but no memory: an access to a page without a block faults. map()
/// maps a block at a whole number of blocks from the beginning of a range, and replaces the block
/// that is mapped there. `user` is the first stream that uses the block at this address. For work
/// submitted to `user` after map() the content of the block is undefined; with
/// DeviceOptions::poison it is a NaN pattern. Submit new work on the block only after map() has
/// returned.
///
/// If keep_addresses() is true, a block stays mapped at each of its addresses until another block
/// is mapped there. Such a block can be mapped early, while work at its other addresses still runs.
/// The caller makes `user` wait for that work. The caller calls map() after the last work at the
/// new address is done, unless the block is mapped there already. If keep_addresses() is false,
/// map() moves the block, so the caller calls map() only after the last work on the block is done
/// as well.
class Blocks {
 public:
  virtual ~Blocks() = default;
  /// Reserves addresses, rounded up to whole blocks; they stay reserved as long as the Blocks
  /// object lives.
  virtual std::byte* reserve(size_t bytes) = 0;
  virtual void map(uint32_t block, std::byte* address, Stream& user) = 0;
  virtual bool keep_addresses() const { return false; }
  /// Whether the block is mapped at this address. Only for blocks that keep their addresses.
  virtual bool lies_at(uint32_t /*block*/, const std::byte* /*address*/) const { return false; }
  virtual size_t block_bytes() const = 0;
  virtual uint32_t num_blocks() const = 0;
};

/// The origin of the attention kernels. Those of cuDNN are faster, round the attention
/// probabilities and the gradients of scores to 16 bits before they multiply them, and need more
/// workspace.
enum class AttentionKernels : uint8_t { Ebb, Cudnn };

/// The properties of a device on which a plan depends. The device, the plan and the trainer share
/// this value. In DeviceInfo and in a preparation, the number of threads is known.
struct DeviceProfile {
  DeviceKind kind = DeviceKind::Host;
  /// Host threads of kernels, on which their workspace depends; 0: one for each usable core.
  int num_threads = 0;
  /// Cuda: the kernels to use; nullopt: those of cuDNN if it is found. A plan for nullopt has
  /// memory for the kernels that need more workspace.
  std::optional<AttentionKernels> attention = {};
  /// Cuda: host memory that may be pinned. If it is too small to pin a home, copies to and from the
  /// device pass through staging buffers.
  size_t pinned_bytes = SIZE_MAX;
};

struct DeviceInfo {
  DeviceProfile profile = {};
  std::string name;             ///< "AMD EPYC, 2 threads, AVX3"
  size_t memory_bytes = 0;      ///< the budget
  double load_bytes_per_s = 0;  ///< of the emulated link; 0: not emulated
  double store_bytes_per_s = 0;
  Arithmetic arithmetic = Arithmetic::Fp32;  ///< host: for bf16 matrix products
  /// Emulated compute: kernels compute nothing and use no cores, but take the time that a device
  /// with these rates would take.
  std::optional<ComputeRates> emulate_compute = {};
};

/// The name of a range of work of a thread for a profiler: "forward attention", "load weights 7".
struct RangeName {
  std::string_view what, name;
  int64_t number = -1;  ///< -1: the name has no number
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;

  virtual Buffer allocate(MemoryKind kind, size_t bytes, std::string_view tag) = 0;
  /// Makes memory of the caller, which begins with a page, MemoryKind::Shared. The destructor of
  /// the buffer unpins it and does not free it. REQUIRES: the memory lives longer, and so do the
  /// pages in which it ends.
  virtual Buffer share(std::byte* memory, size_t bytes) {
    return Buffer(this, MemoryKind::Shared, memory, bytes);
  }
  /// `block_bytes` must be a multiple of the size in which the device maps memory: 4 KiB on the
  /// host device (LogicError), and the granularity of a GPU, often 2 MiB (ConfigError).
  virtual std::unique_ptr<Blocks> create_blocks(size_t block_bytes, uint32_t num_blocks) = 0;
  // For GPUs that can read each other's memory (peer access). By default these throw LogicError.
  /// The name of a buffer of MemoryKind::Device. REQUIRES: its size is a multiple of 2 MiB, because
  /// CUDA shares whole pages of this size.
  virtual MemoryName memory_name(const Buffer& buffer);
  /// The address at which this device reads the memory of another device, as long as the result
  /// lives. Throws DeviceError if the driver refuses it. REQUIRES: the buffer lives longer.
  virtual std::shared_ptr<const std::byte> open_memory(const MemoryName& name);

  /// Allocates the scratch memory that all kernels of the compute stream share. Only this call
  /// makes it grow.
  virtual void reserve_workspace(size_t bytes) = 0;

  virtual std::unique_ptr<Stream> create_stream(StreamKind role) = 0;
  virtual std::unique_ptr<Event> create_event() = 0;
  virtual Kernels& kernels() = 0;
  /// Sets whether a thread that makes a GPU stream wait for host work blocks itself until the host
  /// work is done, instead of submitting the wait to the stream. Off at first. Set this while
  /// kernels are launched for the first time: CUDA loads a kernel at its first launch, and the load
  /// may wait until all submitted work is done. Set this also if the host work itself may wait for
  /// GPU work that is submitted later: streams can share a hardware queue, in which the later work
  /// would be stuck after the wait.
  virtual void block_submitting_thread(bool) noexcept {}

  /// Allocated bytes of MemoryKind::Device (buffers, blocks, workspace): now, and the largest value
  /// so far.
  virtual size_t used_bytes() const = 0;
  virtual size_t peak_bytes() const = 0;
  /// Bytes of host memory that are pinned now. 0 for a device whose copies need no pinned memory.
  virtual size_t pinned_bytes() const { return 0; }
  /// Bytes of MemoryKind::Home that are not pinned.
  virtual size_t staged_bytes() const { return 0; }
  /// Whether the driver refused to pin bytes that the limit (DeviceProfile::pinned_bytes) allows.
  virtual bool pinning_refused() const { return false; }
  /// The number of allocations of any kind since the device was created. It must not change after
  /// set-up.
  virtual uint64_t num_allocations() const = 0;
  /// Seconds on the clock that Event::time_s() uses.
  virtual double now_s() const = 0;

  /// Names the work that the calling thread does or submits until the matching end_range(). Ranges
  /// can be nested. A profiler of the device shows them; without a profiler they have no effect.
  virtual void begin_range(const RangeName&) noexcept {}
  virtual void end_range() noexcept {}

 protected:
  friend class Buffer;
  virtual void free(MemoryKind kind, std::byte* data, size_t bytes) noexcept = 0;
};

/// A profiler range from its construction to its destruction.
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

/// The operations before which DeviceOptions::fault is called. If it returns true, the operation
/// fails.
enum class FaultSite : uint8_t { Allocation, Copy, Launch };

struct DeviceOptions {
  DeviceProfile profile = {};
  size_t memory_bytes = SIZE_MAX;  ///< budget for MemoryKind::Device
  double load_bytes_per_s = 0;     ///< host: rate of the emulated link, 0 = as fast as memory
  double store_bytes_per_s = 0;
  std::optional<Arithmetic> arithmetic = {};  ///< host: for bf16 products; none: the faster one
  /// Host: emulated compute, at these rates. Kernels write nothing, so their outputs keep the old
  /// bytes: zeros, or the bytes of the last copy.
  std::optional<ComputeRates> emulate_compute = {};
  bool poison = false;  ///< fill freed memory and blocks that are mapped with NaN patterns
  int cuda_index = 0;
  /// Cuda: the largest part of a home that one call pins, in whole pages. Drivers refuse to pin
  /// half a TiB at once (docs/decisions.md).
  size_t pinned_piece_bytes = size_t{64} << 30;
  /// Tests: called at every allocation, copy and launch. If it returns true, the operation fails.
  std::function<bool(FaultSite)> fault = {};
};

/// Throws ConfigError if this build does not contain the kind or this machine has no such device.
std::unique_ptr<Device> create_device(const DeviceOptions& options = {});

/// One line for each CUDA device ("NVIDIA H200, 139 GiB, sm_90"), or the reason why there is none.
struct CudaProbe {
  std::vector<std::string> devices;
  std::string
      note;  ///< "built without the CUDA toolkit", "no driver", ...; empty when there are devices
  std::string attention_library;  ///< "cuDNN 9.19.0"; empty: none is found, or no device
};
CudaProbe probe_cuda();

/// The PCI address of a GPU, for example "0000:65:00.0", which is the same in all processes.
std::string gpu_address(int cuda_index);
/// Can this GPU read the memory of the GPU at this address over NVLink? It is false in each of
/// these cases: both are the same GPU; this process does not see the other GPU
/// (CUDA_VISIBLE_DEVICES); CUDA_DEVICE_MAX_CONNECTIONS is below 8. Throws DeviceError.
bool can_read_gpu(int cuda_index, const std::string& address);

}  // namespace ebb

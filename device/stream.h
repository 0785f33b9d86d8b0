// Streams and events define the order of a device's work.
//
// A stream runs its operations in the order of their submission, asynchronously to the submitting
// thread. Only events order the work of different streams: producer.record(e); consumer.wait(e). An
// event may be recorded again, for example once per step. A wait refers to the latest record that
// was submitted before the wait. A submission may block until earlier operations of the stream are
// done, so an operation must not wait for work that its thread submits later.
//
// Thread-safety: only one thread may submit to a stream at a time. Any thread may use an Event, but
// a wait must be submitted after its record. A wait for an event that was never recorded throws
// LogicError.
//
// The destructor of a stream waits for its operations.
//
// Errors: if an operation fails, the stream stores the exception and skips all later operations,
// for the rest of its life. It still fires the events of later records, so no thread waits for
// ever. synchronize() and Event::synchronize() rethrow the exception. A stream that waits for such
// an event fails with the same exception.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "device/errors.h"
#include "device/inline_function.h"

namespace ebb {

/// A matrix product is narrow if its weight has fewer rows or columns than this. GPUs multiply
/// narrow matrices more slowly (docs/results.md).
inline constexpr int64_t kNarrow = 2048;

/// The cost of an operation, for the simulated device and for reports.
struct Cost {
  double flops = 0;
  double narrow_flops = 0;              ///< the part of `flops` in narrow products (kNarrow)
  double attention_flops = 0;           ///< the part of `flops` in attention
  double attention_backward_flops = 0;  ///< the part of `attention_flops` in the backward
  /// The part of `flops` outside of attention and matrix products; 0 for kernels that memory
  /// limits.
  double vector_flops = 0;
  double bytes = 0;            ///< read and written on the device
  size_t workspace_bytes = 0;  ///< scratch memory of the kernel in the device's shared workspace
  std::string_view name = {};  ///< static storage
  uint32_t num_kernels = 0;    ///< in a sum of costs; 0 in the cost of one kernel
};

/// The compute rates of a device. With a rate of 0 the work takes no time.
struct ComputeRates {
  double flops_per_s = 0;
  double bytes_per_s = 0;  ///< of the device's memory

  /// A call takes the longer of its arithmetic and its memory traffic.
  double seconds(const Cost& cost) const {
    return std::max(flops_per_s > 0 ? cost.flops / flops_per_s : 0,
                    bytes_per_s > 0 ? cost.bytes / bytes_per_s : 0);
  }
};

/// A trivially copyable callable of at most 512 bytes; it captures views and values, not owners.
using HostFunction = InlineFunction<void(), 512>;

enum class StreamKind : uint8_t {
  Compute,
  Load,    ///< host to device
  Store,   ///< device to host
  Update,  ///< the optimizer; it runs on host threads for every kind of device
  // Messages to and from other ranks, on host threads (scheduler/plan/message.h):
  Send,     ///< sums and norms; updates and fetches tell others on their own streams
  Receive,  ///< waits for messages
  Fetch,    ///< other machines to host, on a host thread
  Parts,    ///< messages about split loads, and waits for weights that they load, on a host thread
};
inline constexpr int kNumStreamKinds = 8;
/// So many operations can be in the queue of an update stream before a submission blocks. A step
/// begins with the submission of all deferred updates: two operations for each chunk, or five if
/// other ranks are told of it. If that blocked, the first call would come late. With chunks of 64
/// MiB and bf16 this is enough for 137 billion parameters of one rank, or 54 billion of each of
/// several. The queue takes 5 MB.
inline constexpr size_t kQueueOfUpdates = 8'192;

/// Within: from device memory to device memory, also from that of a device that this one can read.
enum class CopyKind : uint8_t { Load, Store, Within };

class Event {
 public:
  virtual ~Event() = default;
  /// Fires the event from a host thread, as if a stream had recorded the event and reached the
  /// record.
  virtual void signal() = 0;
  /// Blocks the calling thread until the latest record has been reached; rethrows its stream's
  /// error. Throws LogicError if the event was never recorded.
  virtual void synchronize() const = 0;
  /// Has the latest record been reached? False if the event was never recorded.
  [[nodiscard]] virtual bool done() const = 0;
  /// Seconds on the device's clock at which the latest record was reached. REQUIRES: done().
  [[nodiscard]] virtual double time_s() const = 0;
};

/// The time that a stream has spent since its creation, in seconds.
struct StreamStats {
  double busy_s = 0;     ///< running operations
  double waiting_s = 0;  ///< blocked in wait(event)
  uint64_t num_operations = 0;
  uint64_t copied_bytes = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  virtual void record(Event& event) = 0;
  virtual void wait(const Event& event) = 0;
  /// Copies bytes. Load and Store use the emulated or real link. A GPU's update stream throws
  /// LogicError.
  virtual void copy(void* to, const void* from, size_t bytes, CopyKind kind) = 0;
  /// Runs a host function, which must not be empty, in stream order. The simulated device only
  /// counts the function, and the compute stream of emulated compute sleeps instead.
  virtual void submit(const Cost& cost, HostFunction function) = 0;
  /// Blocks until all operations submitted so far are done. Rethrows the first error of the stream.
  /// The compute stream of a GPU first throws LogicError if a kernel found an error in its data.
  virtual void synchronize() = 0;
  /// May be called from any thread.
  [[nodiscard]] virtual StreamStats stats() const = 0;
};

}  // namespace ebb

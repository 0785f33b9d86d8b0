// Streams and events: the order in which a device works.
//
// A stream runs what is submitted to it in submission order, asynchronously to the submitting
// thread. Work on different streams is ordered only by events: producer.record(e);
// consumer.wait(e). Events may be recorded again (once a step, say); a wait means the latest record
// submitted before it.
//
// Thread-safety: one thread submits to a stream at a time; an Event may be used from any thread,
// but a wait must be submitted after the record it means. Waiting for an event that was never
// recorded is a LogicError.
//
// Errors: a failing operation stores its exception on its stream; what was submitted after it is
// dropped, but its events still fire, so nobody waits for ever. synchronize() and
// Event::synchronize() rethrow it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "device/errors.h"
#include "device/inline_function.h"

namespace ebb {

/// What an operation costs, for the simulated device and for reports.
struct Cost {
  double flops = 0;
  double attention_flops = 0;  ///< of them, those of attention
  double vector_flops = 0;     ///< of them, those outside of attention and matrix products
  double bytes = 0;            ///< read and written on the device
  size_t workspace_bytes = 0;  ///< scratch the kernel takes from the device's shared workspace
  std::string_view name = {};  ///< static storage
  uint32_t num_kernels = 0;    ///< of a sum of costs: how many it has
};

/// How fast a device computes; a rate of 0 takes no time.
struct ComputeRates {
  double flops_per_s = 0;
  double bytes_per_s = 0;  ///< of its memory

  /// A call takes the longer of its arithmetic and its memory traffic.
  double seconds(const Cost& cost) const {
    return std::max(flops_per_s > 0 ? cost.flops / flops_per_s : 0,
                    bytes_per_s > 0 ? cost.bytes / bytes_per_s : 0);
  }
};

using HostFunction = InlineFunction<void(), 320>;

enum class StreamKind : uint8_t {
  Compute,
  Load,    ///< host to device
  Store,   ///< device to host
  Update,  ///< host work, on host threads on every device: the optimizer
};
inline constexpr int kNumStreamKinds = 4;

enum class CopyKind : uint8_t { Load, Store, Within };

class Event {
 public:
  virtual ~Event() = default;
  /// Fires the event from a host thread, as if a stream had recorded and reached it.
  virtual void signal() = 0;
  /// Blocks the calling thread until the latest record has been reached; rethrows its stream's
  /// error.
  virtual void synchronize() const = 0;
  /// Has the latest record been reached?
  [[nodiscard]] virtual bool done() const = 0;
  /// Seconds on the device's clock at which the latest record was reached. REQUIRES: done().
  [[nodiscard]] virtual double time_s() const = 0;
};

/// Time a stream has spent since it was created, in seconds.
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
  /// Copies bytes; Load and Store take the emulated or real link.
  virtual void copy(void* to, const void* from, size_t bytes, CopyKind kind) = 0;
  /// Runs a host function in stream order. On the simulated device it is only counted.
  virtual void submit(const Cost& cost, HostFunction function) = 0;
  /// Blocks until everything submitted so far is done; rethrows the stream's first error.
  virtual void synchronize() = 0;
  [[nodiscard]] virtual StreamStats stats() const = 0;
};

}  // namespace ebb

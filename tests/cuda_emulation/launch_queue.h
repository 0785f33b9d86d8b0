// The bounded launch queues of emulated streams, and what a thread that finds a queue full keeps
// other threads from.
//
// A GPU's queue of a stream has room for a limited number of entries (launches, copies, waits and
// records), of which a smaller number may be records of events with cudaEventBlockingSync. A call
// that finds the queue full blocks until the GPU has run an entry. Thread-safe; ThreadSanitizer
// sees no order from it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace ebb::emulation {

enum class Entry : uint8_t { Work, BlockingRecord };

/// The room of one stream's queue, as Settings::queue_entries and queue_records say.
class LaunchQueue {
 public:
  /// Blocks while the queue is full. Such a thread keeps others from calls, as
  /// Settings::full_queue says.
  void enter(Entry entry);
  /// The stream has run the entry.
  void leave(Entry entry);

 private:
  bool has_room(Entry entry) const;

  std::mutex mutex_;
  std::condition_variable left_;
  int num_entries_ = 0, num_records_ = 0;
};

/// The number of calls that found a queue full since the last reset_device().
uint64_t num_full_queues();
void forget_full_queues();

/// What a call needs of the driver.
enum class Access : uint8_t {
  Submit,  ///< an entry of a queue
  Ask,     ///< asks for an event, or begins to wait for it
  Map,     ///< changes which memory the device sees
  CreateEvent,
};

/// Exists during a call. The constructor blocks while another thread has the lock in a way that
/// excludes this call.
class DriverCall {
 public:
  explicit DriverCall(Access access);
  ~DriverCall();
  DriverCall(const DriverCall&) = delete;
  DriverCall& operator=(const DriverCall&) = delete;

 private:
  enum class Mode : uint8_t { Nothing, Shared, Exclusive };
  static Mode mode_of(Access access);
  const Mode mode_;
};

}  // namespace ebb::emulation

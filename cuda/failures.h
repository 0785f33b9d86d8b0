// Which failures come before a point of a stream: how errors pass from stream to stream with
// events.
//
// All devices of the process share one Failures, so a stream may wait for another device's event.
// Each stream counts its operations: position p of a stream is its p-th operation. A point of a
// stream (for example the record of an event) comes after positions of its own stream and, because
// of waits, after positions of other streams. Its StreamClock has the last such position in each
// stream (a vector clock: Fidge 1988, Mattern 1989). A failure at position p of stream s comes
// before every point whose clock has p or more for s. So a stream that waited, directly or not, for
// work that failed gets the error, and a stream that waited for earlier work does not. CUDA alone
// does not give this information: its events have no errors of single operations.
//
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace ebb {

/// The largest number of streams at one time, those of all CUDA devices together.
inline constexpr uint32_t kMaxStreams = 64;

struct StreamClock {
  std::array<uint64_t, kMaxStreams> positions{};

  void merge(const StreamClock& other) {
    for (uint32_t i = 0; i < kMaxStreams; ++i) {
      if (other.positions[i] > positions[i]) positions[i] = other.positions[i];
    }
  }
};

/// The `position`-th operation of stream `index`.
struct Operation {
  uint32_t index = 0;
  uint64_t position = 0;
};

class Failures {
 public:
  /// The object of the process. It is destroyed with its last owner, and so forgets failures of
  /// devices that do not exist any more.
  static std::shared_ptr<Failures> of_process();

  /// Records that an operation failed. The stream of the operation may be destroyed already.
  void fail(const Operation& operation, std::exception_ptr error) noexcept;
  /// The first failure that comes before the point, or null. Very cheap while nothing has failed.
  std::exception_ptr error_before(const StreamClock& point) const noexcept;

 private:
  friend class StreamPoint;
  /// Assigns an index to a new stream, and a first position after all earlier positions of this
  /// index. Throws LogicError if all indices are in use.
  std::pair<uint32_t, uint64_t> enter();
  void leave(uint32_t index, uint64_t last_position) noexcept;

  struct Failure {
    uint32_t index = 0;
    uint64_t first = 0, last = UINT64_MAX;  // the positions to which the failure applies
    std::exception_ptr error;
  };

  mutable std::mutex mutex_;
  std::array<bool, kMaxStreams> taken_{};
  std::array<uint64_t, kMaxStreams> last_position_{};
  std::vector<Failure> failures_;
  std::atomic<bool> any_ = false;
};

/// The point of a stream after its last submitted operation. The stream owns it; it is as
/// thread-safe as the stream.
class StreamPoint {
 public:
  explicit StreamPoint(Failures& failures);
  ~StreamPoint();
  StreamPoint(const StreamPoint&) = delete;
  StreamPoint& operator=(const StreamPoint&) = delete;

  void advance() { ++clock_.positions[index_]; }
  void merge(const StreamClock& other) { clock_.merge(other); }
  const StreamClock& clock() const { return clock_; }
  /// The operation that was submitted last.
  Operation operation() const { return {index_, clock_.positions[index_]}; }

  /// Records that the last submitted operation, or the operation at position `n`, failed.
  void fail(std::exception_ptr error) noexcept;
  void fail_at(uint64_t n, std::exception_ptr error) noexcept;
  std::exception_ptr error() const noexcept { return failures_.error_before(clock_); }

 private:
  Failures& failures_;
  uint32_t index_ = 0;
  uint64_t begin_ = 0;
  StreamClock clock_;
};

}  // namespace ebb

// Which failure stands before which point of which stream: how errors travel along events.
//
// Each stream counts what is submitted to it; position p of a stream is its p-th operation. A point
// of a stream (an event's record, say) comes after its own stream's positions and, through waits,
// after some of other streams: its StreamClock says how far in each (a vector clock: Fidge 1988,
// Mattern 1989). A failure at position p of stream s stands before every point whose clock has p or
// more for s. So a stream that waited, however indirectly, for work that failed knows it, and one
// that waited for earlier work does not, although a GPU only ever says that everything is over.
//
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

namespace ebb {

/// Streams that a CUDA device may have at a time.
inline constexpr uint32_t kMaxStreams = 32;

struct StreamClock {
  std::array<uint64_t, kMaxStreams> positions{};

  void merge(const StreamClock& other) {
    for (uint32_t i = 0; i < kMaxStreams; ++i) {
      if (other.positions[i] > positions[i]) positions[i] = other.positions[i];
    }
  }
};

/// The `position`-th operation of the stream that has that index.
struct Operation {
  uint32_t index = 0;
  uint64_t position = 0;
};

class Failures {
 public:
  /// Its stream may have gone by then.
  void fail(const Operation& operation, std::exception_ptr error) noexcept;
  /// The first failure that stands before the point, or null. Nearly free while nothing has failed.
  std::exception_ptr error_before(const StreamClock& point) const noexcept;

 private:
  friend class StreamPoint;
  /// A place for a new stream, with a position behind all that were taken there. Throws LogicError
  /// where all places are taken.
  std::pair<uint32_t, uint64_t> enter();
  void leave(uint32_t index, uint64_t last_position) noexcept;

  struct Failure {
    uint32_t index = 0;
    uint64_t first = 0, last = UINT64_MAX;  // positions of the stream that it stands for
    std::exception_ptr error;
  };

  mutable std::mutex mutex_;
  std::array<bool, kMaxStreams> taken_{};
  std::array<uint64_t, kMaxStreams> last_position_{};
  std::vector<Failure> failures_;
  std::atomic<bool> any_ = false;
};

/// Where a stream is: the point of what was submitted to it last. Owned by the stream, and as
/// thread-safe as that.
class StreamPoint {
 public:
  explicit StreamPoint(Failures& failures);
  ~StreamPoint();
  StreamPoint(const StreamPoint&) = delete;
  StreamPoint& operator=(const StreamPoint&) = delete;

  void advance() { ++clock_.positions[index_]; }
  void merge(const StreamClock& other) { clock_.merge(other); }
  const StreamClock& clock() const { return clock_; }
  /// What was submitted last.
  Operation operation() const { return {index_, clock_.positions[index_]}; }

  /// What was submitted last has failed, or what was n-th.
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

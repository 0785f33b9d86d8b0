// The records of an event: streams reach them, threads wait for them.
//
// Each record has a number, from 1. A wait is for one record: as a rule the newest when the wait is
// submitted. Records may be reached in any order, because an event may be recorded on several
// streams. An error that a record carries stays with the counter.
//
// Thread-safety: every method may be called from any thread. ThreadSanitizer sees that reach()
// comes before the wait that returns because of it, and nothing else.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>

#include "system/clock.h"

namespace ebb {

class RecordCounter {
 public:
  struct Reached {
    double time_s = 0;  ///< that reach() was given for the newest reached record
    std::exception_ptr error;
  };

  /// `shown` (may be null): a word, 0 at first, that always holds the largest number up to which
  /// every record is reached. A GPU may read the word, which must outlive the counter.
  explicit RecordCounter(uint32_t* shown = nullptr) : shown_(shown) {}
  ~RecordCounter();
  RecordCounter(const RecordCounter&) = delete;
  RecordCounter& operator=(const RecordCounter&) = delete;

  /// Announces a record and returns its number.
  uint64_t submit();
  /// The newest number; 0: nothing was recorded yet.
  uint64_t newest() const;

  /// `time_s`: when the work before the record ended. Blocks while a record whose
  /// number is smaller by 64 or more is not reached yet.
  void reach(uint64_t number, std::exception_ptr error, double time_s = steady_now_s());
  /// Blocks until the record is reached.
  Reached wait(uint64_t number) const;
  [[nodiscard]] bool is_reached(uint64_t number) const;
  /// The time at which the newest record was reached; nullopt: it is not reached yet, or there is
  /// none.
  std::optional<double> newest_time_s() const;

 private:
  static constexpr uint64_t kWindow = 64;
  bool is_reached_locked(uint64_t number) const;

  uint32_t* const shown_;
  mutable std::mutex mutex_;
  mutable std::condition_variable reached_one_;
  uint64_t newest_ = 0;
  uint64_t all_reached_ = 0;    // every record up to this number is reached
  uint64_t reached_after_ = 0;  // bit i: record all_reached_ + 1 + i is reached
  uint64_t newest_reached_ = 0;
  double time_s_ = 0;  // of newest_reached_
  std::exception_ptr error_;
};

}  // namespace ebb

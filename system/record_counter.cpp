#include "system/record_counter.h"

#include <atomic>
#include <utility>

#include "system/tsan.h"

namespace ebb {

// The thread that reached the last record may still hold the lock when a GPU has read the word.
RecordCounter::~RecordCounter() { TsanHiddenLock lock(mutex_); }

uint64_t RecordCounter::submit() {
  TsanHiddenLock lock(mutex_);
  return ++newest_;
}

uint64_t RecordCounter::newest() const {
  TsanHiddenLock lock(mutex_);
  return newest_;
}

bool RecordCounter::is_reached_locked(uint64_t number) const {
  if (number <= all_reached_) return true;
  const uint64_t after = number - all_reached_ - 1;
  return after < kWindow && (reached_after_ >> after & 1) != 0;
}

// Waiters are notified under the lock, because one of them may destroy the counter as soon as it
// has the lock.
void RecordCounter::reach(uint64_t number, std::exception_ptr error, double time_s) {
  if (shown_ != nullptr) tsan_release(shown_);
  tsan_release(this);  // Last: after this, ThreadSanitizer allows a waiter to destroy the counter.
  TsanHiddenLock lock(mutex_);
  lock.wait(reached_one_, [&] { return number - all_reached_ - 1 < kWindow; });
  reached_after_ |= uint64_t{1} << (number - all_reached_ - 1);
  while ((reached_after_ & 1) != 0) ++all_reached_, reached_after_ >>= 1;
  if (number > newest_reached_) newest_reached_ = number, time_s_ = time_s;
  if (error && !error_) error_ = std::move(error);
  if (shown_ != nullptr) {
    std::atomic_ref(*shown_).store(static_cast<uint32_t>(all_reached_), std::memory_order_release);
  }
  reached_one_.notify_all();
}

RecordCounter::Reached RecordCounter::wait(uint64_t number) const {
  Reached reached;
  {
    TsanHiddenLock lock(mutex_);
    lock.wait(reached_one_, [&] { return is_reached_locked(number); });
    reached = {time_s_, error_};
  }
  tsan_acquire(this);
  return reached;
}

bool RecordCounter::is_reached(uint64_t number) const {
  bool reached = false;
  {
    TsanHiddenLock lock(mutex_);
    reached = is_reached_locked(number);
  }
  if (reached) tsan_acquire(this);
  return reached;
}

std::optional<double> RecordCounter::newest_time_s() const {
  TsanHiddenLock lock(mutex_);
  if (newest_ == 0 || !is_reached_locked(newest_)) return std::nullopt;
  return time_s_;
}

}  // namespace ebb

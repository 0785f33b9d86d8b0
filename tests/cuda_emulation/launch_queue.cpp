#include "tests/cuda_emulation/launch_queue.h"

#include <atomic>

#include "system/tsan.h"
#include "tests/cuda_emulation/emulated_device.h"

namespace ebb::emulation {
namespace {

std::atomic<uint64_t> full_queues = 0;

/// A lock for readers and writers. While a writer waits, no further reader gets the lock.
class DriverLock {
 public:
  void lock_shared() {
    TsanHiddenLock lock(mutex_);
    lock.wait(changed_, [this] { return !is_written_ && num_waiting_ == 0; });
    ++num_readers_;
  }
  void lock() {
    TsanHiddenLock lock(mutex_);
    ++num_waiting_;
    lock.wait(changed_, [this] { return !is_written_ && num_readers_ == 0; });
    --num_waiting_;
    is_written_ = true;
  }
  void unlock_shared() {
    TsanHiddenLock lock(mutex_);
    --num_readers_;
    changed_.notify_all();
  }
  void unlock() {
    TsanHiddenLock lock(mutex_);
    is_written_ = false;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_readers_ = 0, num_waiting_ = 0;
  bool is_written_ = false;
};

/// Never destroyed: threads of a program that hangs may use it at exit.
DriverLock& driver_lock() {
  static auto* const one = new DriverLock;
  return *one;
}

/// The part of a call during which it stands in a full queue.
class FullQueueWait {
 public:
  FullQueueWait() {
    ++full_queues;
    if (locks_) driver_lock().lock_shared();
  }
  ~FullQueueWait() {
    if (locks_) driver_lock().unlock_shared();
  }
  FullQueueWait(const FullQueueWait&) = delete;
  FullQueueWait& operator=(const FullQueueWait&) = delete;

 private:
  // Otherwise the whole call has the lock.
  const bool locks_ = settings().full_queue == FullQueue::BlocksEventCreation;
};

}  // namespace

uint64_t num_full_queues() { return full_queues; }
void forget_full_queues() { full_queues = 0; }

bool LaunchQueue::has_room(Entry entry) const {
  return num_entries_ < settings().queue_entries &&
         (entry != Entry::BlockingRecord || num_records_ < settings().queue_records);
}

void LaunchQueue::enter(Entry entry) {
  const auto add = [&] {
    ++num_entries_;
    if (entry == Entry::BlockingRecord) ++num_records_;
  };
  {
    TsanHiddenLock lock(mutex_);
    if (has_room(entry)) return add();
  }
  const FullQueueWait full;
  TsanHiddenLock lock(mutex_);
  lock.wait(left_, [&] { return has_room(entry); });
  add();
}

void LaunchQueue::leave(Entry entry) {
  TsanHiddenLock lock(mutex_);
  --num_entries_;
  if (entry == Entry::BlockingRecord) --num_records_;
  left_.notify_all();
}

DriverCall::Mode DriverCall::mode_of(Access access) {
  if (settings().full_queue == FullQueue::BlocksEventCreation) {
    return access == Access::CreateEvent ? Mode::Exclusive : Mode::Nothing;
  }
  const bool is_shared = access == Access::Submit || access == Access::Ask;
  return is_shared ? Mode::Shared : Mode::Exclusive;
}

DriverCall::DriverCall(Access access) : mode_(mode_of(access)) {
  if (mode_ == Mode::Shared) driver_lock().lock_shared();
  if (mode_ == Mode::Exclusive) driver_lock().lock();
}

DriverCall::~DriverCall() {
  if (mode_ == Mode::Shared) driver_lock().unlock_shared();
  if (mode_ == Mode::Exclusive) driver_lock().unlock();
}

}  // namespace ebb::emulation

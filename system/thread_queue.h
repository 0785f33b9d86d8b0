// A thread that runs tasks in the order in which they were submitted.
//
// The queue is bounded: if `capacity` tasks are not done, submit() blocks until half of them are.
// Nothing is allocated after construction. A task that is done is kept until its entry is used
// again. The destructor runs all tasks that are queued, and then ends the thread. A task must not
// throw.
//
// Thread-safety: submit() and wait_until_idle() may be called from any thread but the queue's own;
// one thread submits at a time. ThreadSanitizer sees that submitting comes before running, and that
// running comes before wait_until_idle() returns, and nothing else.
#pragma once

#include <sys/prctl.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "system/denormals.h"
#include "system/tsan.h"

namespace ebb {

/// The default capacity of a queue, in tasks.
inline constexpr size_t kQueueCapacity = 1024;

/// `Task` is default-constructible, movable and called without arguments.
template <class Task>
class ThreadQueue {
 public:
  /// `name` of the thread: static storage, at most 15 characters. `capacity`: at least 2.
  explicit ThreadQueue(const char* name, size_t capacity = kQueueCapacity)
      : ring_(capacity), thread_([this, name] { run(name); }) {}

  ~ThreadQueue() {
    {
      TsanHiddenLock lock(mutex_);
      stopping_ = true;
    }
    submitted_.notify_one();
    thread_.join();
  }

  ThreadQueue(const ThreadQueue&) = delete;
  ThreadQueue& operator=(const ThreadQueue&) = delete;

  void submit(Task task) {
    tsan_release(&num_submitted_);
    {
      TsanHiddenLock lock(mutex_);
      // When the queue is full, wait until half of it is free: otherwise every task that ends would
      // wake the submitting thread.
      if (num_submitted_ - num_done_ == ring_.size())
        wait_done(lock, num_submitted_ - ring_.size() / 2);
      ring_[num_submitted_ % ring_.size()] = std::move(task);
      ++num_submitted_;
    }
    submitted_.notify_one();
  }

  /// Blocks until every task that was submitted so far is done.
  void wait_until_idle() {
    {
      TsanHiddenLock lock(mutex_);
      wait_done(lock, num_submitted_);
    }
    tsan_acquire(&num_done_);
  }

  bool is_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  static constexpr uint64_t kNothing = UINT64_MAX;

  void wait_done(TsanHiddenLock& lock, uint64_t count) {
    lock.wait(done_, [&] {
      if (num_done_ >= count) return true;
      awaited_ = std::min(awaited_, count);
      return false;
    });
  }

  /// The next task, or null when the queue is empty and stops.
  Task* next() {
    Task* task = nullptr;
    {
      TsanHiddenLock lock(mutex_);
      lock.wait(submitted_, [&] { return num_done_ < num_submitted_ || stopping_; });
      if (num_done_ < num_submitted_) task = &ring_[num_done_ % ring_.size()];
    }
    tsan_acquire(&num_submitted_);
    return task;
  }

  void run(const char* name) {
    prctl(PR_SET_NAME, name, 0UL, 0UL, 0UL);
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);  // tasks may sleep until a deadline
    const FlushDenormals flush;
    while (Task* const task = next()) {
      (*task)();
      tsan_release(&num_done_);
      TsanHiddenLock lock(mutex_);
      if (++num_done_ < awaited_) continue;
      awaited_ = kNothing;
      done_.notify_all();
    }
  }

  std::vector<Task> ring_;
  std::mutex mutex_;
  std::condition_variable submitted_, done_;
  uint64_t num_submitted_ = 0;
  uint64_t num_done_ = 0;
  uint64_t awaited_ = kNothing;  // the smallest number of finished tasks that a thread waits for
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace ebb

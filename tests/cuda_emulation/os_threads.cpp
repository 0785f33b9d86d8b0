#include "tests/cuda_emulation/os_threads.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "system/denormals.h"
#include "system/thread_team.h"

namespace ebb::emulation {
namespace {

/// One call of deal(). Other threads may see it after it has ended.
struct Deal {
  std::mutex mutex;
  std::condition_variable all_left;
  int64_t next = 0, count = 0;
  int num_inside = 0;
  std::exception_ptr error;
  const std::function<void(int64_t)>* run = nullptr;

  void work() {
    std::unique_lock lock(mutex);
    ++num_inside;
    while (next < count) {
      const int64_t index = next++;
      lock.unlock();
      std::exception_ptr failure;
      try {
        (*run)(index);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (failure == nullptr) continue;
      if (error == nullptr) error = failure;
      next = count;
    }
    if (--num_inside == 0) all_left.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    all_left.wait(lock, [this] { return next == count && num_inside == 0; });
    // Moved out, so that a thread that sees the deal late does not free an exception that others
    // read.
    if (error != nullptr) std::rethrow_exception(std::exchange(error, nullptr));
  }
};

/// Threads that live as long as the process and keep their fibers. All tests and streams share
/// them.
class OsThreads {
 public:
  OsThreads() {
    for (std::jthread& thread : threads_) {
      thread = std::jthread([this](std::stop_token stop) { work(stop); });
    }
  }
  void add(const std::shared_ptr<Deal>& deal) {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < kCount; ++i) waiting_.push_back(deal);
    changed_.notify_all();
  }

 private:
  static constexpr size_t kCount = 2;

  void work(const std::stop_token& stop) {
    const FlushDenormals flush;
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [&] { return !waiting_.empty(); })) {
      const std::shared_ptr<Deal> deal = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      deal->work();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::shared_ptr<Deal>> waiting_;
  std::jthread threads_[kCount];
};

}  // namespace

void deal(int64_t count, const std::function<void(int64_t)>& run) {
  static OsThreads others;
  const auto deal = std::make_shared<Deal>();
  deal->count = count;
  deal->run = &run;
  others.add(deal);
  deal->wait();
}

}  // namespace ebb::emulation

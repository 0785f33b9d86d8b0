#include "scheduler/turns.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "device/errors.h"

namespace ebb {
namespace {
constexpr uint32_t kNobody = UINT32_MAX;
}

Turns::Turns(uint32_t num_threads) {
  for (uint32_t i = 0; i < num_threads; ++i) seats_.push_back(std::make_unique<Seat>());
  try {
    for (uint32_t i = 0; i < num_threads; ++i) threads_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error& error) {
    stop();  // a thread that runs must not be destroyed
    throw ConfigError(fmt::format(
        "cannot start thread {} of the {} that take turns, one for each micro-batch of a step: {}; "
        "allow more processes (ulimit -u, or pids.max of the cgroup), make fewer and larger "
        "micro-batches, or use --micro-batch-order horizontal",
        threads_.size() + 1, num_threads, error.code().message()));
  }
}

Turns::~Turns() { stop(); }

void Turns::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    for (const auto& seat : seats_) seat->called.notify_one();
  }
  for (std::thread& thread : threads_) thread.join();
}

void Turns::run_erased(uint32_t count, const void* body, void (*call)(const void*, uint32_t)) {
  EBB_CHECK(count <= seats_.size(), "more bodies than threads to take turns");
  if (count == 0) return;
  std::unique_lock lock(mutex_);
  body_ = body;
  call_ = call;
  count_ = count;
  error_ = nullptr;
  for (uint32_t i = 0; i < count; ++i) seats_[i]->ended = false;
  turn_ = count - 1;
  hand_on(turn_, lock);
  all_ended_.wait(lock, [&] { return turn_ == kNobody; });
  if (error_) std::rethrow_exception(error_);
}

/// To the next body that has not ended. It is called without the lock, or it would wait for that.
void Turns::hand_on(uint32_t from, std::unique_lock<std::mutex>& lock) {
  turn_ = kNobody;
  for (uint32_t step = 1; step <= count_ && turn_ == kNobody; ++step) {
    const uint32_t next = (from + step) % count_;
    if (!seats_[next]->ended) turn_ = next;
  }
  std::condition_variable& called = turn_ == kNobody ? all_ended_ : seats_[turn_]->called;
  lock.unlock();
  called.notify_one();
  lock.lock();
}

void Turns::wait_for_turn(std::unique_lock<std::mutex>& lock, uint32_t i) {
  seats_[i]->called.wait(lock, [&] { return turn_ == i || stop_; });
}

void Turns::pass(uint32_t i) {
  std::unique_lock lock(mutex_);
  hand_on(i, lock);
  wait_for_turn(lock, i);
  if (error_) throw Abandoned{};
}

void Turns::work(uint32_t i) {
  std::unique_lock lock(mutex_);
  for (;;) {
    wait_for_turn(lock, i);
    if (stop_) return;
    if (!error_) {
      std::exception_ptr error;
      lock.unlock();
      try {
        call_(body_, i);
      } catch (const Abandoned&) {
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error && !error_) error_ = error;
    }
    seats_[i]->ended = true;
    hand_on(i, lock);
  }
}

}  // namespace ebb

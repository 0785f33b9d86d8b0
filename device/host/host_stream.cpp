#include "device/host/host_stream.h"

#include <algorithm>
#include <utility>

#include "device/errors.h"
#include "device/host/host_event.h"
#include "system/clock.h"
#include "system/copy.h"
#include "system/tsan.h"

namespace ebb {

void HostStream::enqueue(auto command) {
  queue_.submit([this, command, submitted_s = steady_now_s()]() mutable {
    ready_s_ = std::max(ready_s_, submitted_s);
    command();
  });
}

void HostStream::record(Event& event) {
  HostEvent& recorded = as_host_event(event);
  enqueue([this, &recorded, record = recorded.submit_record()] {
    recorded.reach(record, error_, std::max(ready_s_, done_s_));
  });
}

void HostStream::wait(const Event& event) {
  const HostEvent& awaited = as_host_event(event);
  enqueue([this, &awaited, record = awaited.submit_wait()] {
    if (error_) return;
    const double begin_s = std::max(ready_s_, steady_now_s());
    run_wait(awaited.wait(record), begin_s);
  });
}

void HostStream::run_wait(RecordCounter::Reached reached, double begin_s) {
  ready_s_ = std::max(ready_s_, reached.time_s);
  if (reached.error) fail(std::move(reached.error));
  TsanHiddenLock lock(mutex_);
  stats_.waiting_s += std::max(0.0, std::max(ready_s_, steady_now_s()) - begin_s);
}

void HostStream::copy(void* to, const void* from, size_t bytes, CopyKind kind) {
  enqueue([this, to, from, bytes, kind] {
    run_work([&] {
      options_.faults->check_copy(bytes);
      run_copy(to, from, bytes, kind);
    });
    if (error_) return;
    TsanHiddenLock lock(mutex_);
    stats_.copied_bytes += bytes;
  });
}

void HostStream::submit(const Cost& cost, HostFunction function) {
  EBB_CHECK(static_cast<bool>(function), "calling an empty function");
  const auto& rates = options_.emulated_rates;
  enqueue([this, name = cost.name, seconds = rates ? rates->seconds(cost) : 0, function]() mutable {
    run_work([&] {
      options_.faults->check_launch(name);
      if (options_.emulated_rates) return emulate(seconds);
      function();
      ready_s_ = steady_now_s();
    });
  });
}

template <class Work>
void HostStream::run_work(const Work& work) {
  if (error_) return;
  const double begin_s = options_.emulated_rates ? ready_s_ : steady_now_s();
  try {
    work();
  } catch (...) {
    fail(std::current_exception());
  }
  const double end_s = options_.emulated_rates ? ready_s_ : steady_now_s();
  TsanHiddenLock lock(mutex_);
  stats_.busy_s += end_s - begin_s;
  ++stats_.num_operations;
}

void HostStream::run_copy(void* to, const void* from, size_t bytes, CopyKind kind) {
  if (kind == CopyKind::Within) {
    if (options_.emulated_rates) {
      const double read_and_written = 2.0 * static_cast<double>(bytes);
      return emulate(options_.emulated_rates->seconds({.bytes = read_and_written}));
    }
    copy_bytes(to, from, bytes);
    ready_s_ = steady_now_s();
    return;
  }
  Link& link = kind == CopyKind::Load ? *options_.load : *options_.store;
  const Link::Ended ended = link.copy(to, from, bytes, ready_s_);
  ready_s_ = ended.ideal_s;
  done_s_ = ended.here_s;
}

void HostStream::emulate(double seconds) {
  ready_s_ += seconds;
  sleep_until(ready_s_);
}

void HostStream::fail(std::exception_ptr error) {
  TsanHiddenLock lock(mutex_);
  error_ = std::move(error);
}

void HostStream::synchronize() {
  EBB_CHECK(!queue_.is_own_thread(), "a stream cannot wait for itself");
  queue_.wait_until_idle();
  std::exception_ptr error;
  {
    TsanHiddenLock lock(mutex_);
    error = error_;
  }
  if (error) std::rethrow_exception(error);
}

StreamStats HostStream::stats() const {
  TsanHiddenLock lock(mutex_);
  return stats_;
}

}  // namespace ebb

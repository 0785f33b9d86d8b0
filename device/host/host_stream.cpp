#include "device/host/host_stream.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "device/errors.h"
#include "device/host/copy.h"

namespace ebb {
namespace {

constexpr size_t kRingSlots = 1024;

void set_thread_nice(int nice) { setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), nice); }

/// Meets every thread of the team once, as far as the scheduler brings them within the patience.
void set_team_nice(ThreadTeam& team, int nice) {
  constexpr double kPatienceS = 0.05;
  const double give_up_s = steady_now_s() + kPatienceS;
  const int num_threads = team.num_threads();
  std::atomic<int> num_arrived = 0;
  team.for_each(num_threads, [&](int64_t) {
    set_thread_nice(nice);
    num_arrived.fetch_add(1);
    while (num_arrived.load() < num_threads && steady_now_s() < give_up_s)
      std::this_thread::yield();
  });
}

double this_threads_processor_s() {
  timespec used;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

void prepare_thread(const HostStreamOptions& options) {
  prctl(PR_SET_NAME, options.name, 0UL, 0UL, 0UL);
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);  // what is emulated sleeps to a deadline
  if (options.nice == 0) return;
  set_thread_nice(options.nice);
  if (options.team != nullptr) set_team_nice(*options.team, options.nice);
}

}  // namespace

HostStream::HostStream(const HostStreamOptions& options)
    : options_(options),
      loops_(options.num_loop_threads > 0 ? std::make_unique<LoopQueue>(options.num_loop_threads)
                                          : nullptr),
      ring_(kRingSlots),
      thread_([this] { run_thread(); }) {}

HostStream::~HostStream() {
  {
    QuietLock lock(mutex_);
    stopping_ = true;
    pushed_.notify_one();
  }
  thread_.join();
}

void HostStream::record(Event& event) {
  HostEvent& recorded = as_host_event(event);
  push({.kind = Command::Kind::Record, .event = &recorded, .generation = recorded.submit_record()});
}

void HostStream::wait(const Event& event) {
  const HostEvent& awaited = as_host_event(event);
  push({.kind = Command::Kind::Wait, .awaited = &awaited, .generation = awaited.submit_wait()});
}

void HostStream::copy(void* to, const void* from, size_t bytes, CopyKind kind) {
  push({.kind = Command::Kind::Copy, .to = to, .from = from, .bytes = bytes, .copy_kind = kind});
}

void HostStream::call(const Cost& cost, HostFunction function) {
  EBB_CHECK(static_cast<bool>(function), "calling an empty function");
  push({.kind = Command::Kind::Call, .name = cost.name, .function = function});
}

void HostStream::loop(const Cost& cost, LoopFunction function) {
  if (!loops_) return Stream::loop(cost, function);
  EBB_CHECK(static_cast<bool>(function), "calling an empty function");
  push({.kind = Command::Kind::Loop, .name = cost.name, .function = function});
}

void HostStream::push(Command command) {
  command.submitted_s = steady_now_s();
  give_order(&num_pushed_);
  {
    QuietLock lock(mutex_);
    // A full ring is half emptied before it is filled again, or every command would wake this
    // thread.
    if (num_pushed_ - num_finished_ == kRingSlots) {
      wait_finished(lock, num_pushed_ - kRingSlots / 2);
    }
    ring_[num_pushed_ % kRingSlots] = std::move(command);
    ++num_pushed_;
  }
  pushed_.notify_one();  // it needs the lock at once
}

void HostStream::wait_finished(QuietLock& lock, uint64_t count) {
  pushed_.notify_one();
  lock.wait(finished_, [&] {
    if (num_finished_ >= count) return true;
    awaited_ = std::min(awaited_, count);
    return false;
  });
}

void HostStream::synchronize() {
  EBB_CHECK(std::this_thread::get_id() != thread_.get_id(), "a stream cannot wait for itself");
  std::exception_ptr error;
  {
    QuietLock lock(mutex_);
    wait_finished(lock, num_pushed_);
    error = error_;
  }
  take_order(&num_finished_);
  if (error) std::rethrow_exception(error);
}

StreamStats HostStream::stats() const {
  QuietLock lock(mutex_);
  return stats_;
}

HostStream::Command* HostStream::next() {
  const auto is_there = [&] { return num_begun_ < num_pushed_; };
  work_until([&] {
    QuietLock lock(mutex_);
    return is_there();
  });
  Command* command = nullptr;
  {
    QuietLock lock(mutex_);
    lock.wait(pushed_, [&] { return is_there() || stopping_; });
    if (is_there()) command = &ring_[num_begun_ % kRingSlots];
  }
  take_order(&num_pushed_);
  return command;
}

void HostStream::run_thread() {
  prepare_thread(options_);
  FlushDenormals flush;
  while (Command* command = next()) {
    begin(*command);
    ++num_begun_;
    finish_begun();
  }
}

void HostStream::begin(Command& command) {
  ready_s_ = std::max(ready_s_, command.submitted_s);
  if (command.kind == Command::Kind::Record) return;  // it has its turn in finish_begun()
  if (error_) {
    if (command.kind == Command::Kind::Wait) command.awaited->drop_wait(command.generation);
    return;  // dropped
  }
  if (command.kind == Command::Kind::Wait) return run_wait(command);
  if (command.kind == Command::Kind::Loop) return run_loop(command);
  finish_loops();
  if (!error_) run_work(command);
}

void HostStream::finish_begun() {
  while (num_finished_ < num_begun_) {
    const Command& command = ring_[num_finished_ % kRingSlots];
    if (command.is_queued) {
      if (!loops_->is_done()) return;
      finish_loop(command);
    }
    if (command.kind == Command::Kind::Record) {
      command.event->reach(command.generation, error_, std::max(ready_s_, done_s_));
    }
    give_order(&num_finished_);
    QuietLock lock(mutex_);
    if (++num_finished_ < awaited_) continue;
    awaited_ = UINT64_MAX;
    finished_.notify_all();
  }
}

void HostStream::run_wait(const Command& command) {
  const auto here_s = [&] { return std::max(ready_s_, steady_now_s()); };
  work_until([&] { return command.awaited->is_over(command.generation); });
  const double begin_s = here_s();
  HostEvent::Reached reached = command.awaited->await(command.generation);
  ready_s_ = std::max(ready_s_, reached.time_s);
  if (reached.error) {
    finish_loops();  // what stands before the wait has not failed by it
    if (!error_) fail(std::move(reached.error));
  }
  QuietLock lock(mutex_);
  stats_.waiting_s += here_s() - begin_s;
}

void HostStream::run_work(Command& command) {
  sleep_until(ready_s_);
  const double begin_s = steady_now_s();
  try {
    if (command.kind == Command::Kind::Copy) {
      run_copy(command);
    } else {
      run_call(command);
    }
  } catch (...) {
    fail(std::current_exception());
  }
  const double busy_s = steady_now_s() - begin_s;
  QuietLock lock(mutex_);
  stats_.busy_s += busy_s;
  ++stats_.num_operations;
  if (command.kind == Command::Kind::Copy && !error_) stats_.copied_bytes += command.bytes;
}

// ---- Loops

template <class Ready>
void HostStream::work_until(const Ready& ready) {
  while (loops_ && loops_->size() > 0 && !ready()) {
    if (!loops_->run_one(0)) loops_->wait_until_done();
    finish_begun();
  }
}

void HostStream::finish_loops() {
  work_until([] { return false; });
}

// The newest loop is left to the others for a while: this thread goes on to the next, so that there
// is one for them when they have begun all of this, even if it should lose its core just then.
void HostStream::run_loop(Command& command) {
  work_until([&] { return loops_->size() < LoopQueue::kCapacity; });
  if (error_) return;
  sleep_until(ready_s_);
  command.begin_s = steady_now_s();
  try {
    options_.faults->check_launch(command.name);
    const Loop loop = std::get<LoopFunction>(command.function)();
    if (loop.n > 0) loops_->push(loop);
    command.is_queued = loop.n > 0;
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    finish_loops();
    if (!error_) fail(error);
  }
  while (loops_->run_one(1)) finish_begun();
  QuietLock lock(mutex_);
  ++stats_.num_operations;
}

void HostStream::finish_loop(const Command& command) {
  try {
    loops_->pop();
  } catch (...) {
    if (!error_) fail(std::current_exception());
  }
  const double begin_s = std::max(command.begin_s, loop_end_s_);
  ready_s_ = loop_end_s_ = steady_now_s();
  QuietLock lock(mutex_);
  stats_.busy_s += loop_end_s_ - begin_s;
}

// ---- Work

void HostStream::run_copy(const Command& command) {
  options_.faults->check_copy(command.bytes);
  const double begin_s = this_threads_processor_s();
  for (size_t at = 0; at < command.bytes;) {
    const PageTable::Memory to = memory_at(command.to, at, command.bytes - at);
    const PageTable::Memory from = memory_at(command.from, at, to.bytes);
    copy_piece(to.data, from.data, from.bytes, command.copy_kind);
    at += from.bytes;
  }
  const double used_s = this_threads_processor_s() - begin_s;
  QuietLock lock(mutex_);
  stats_.copying_processor_s += used_s;
}

PageTable::Memory HostStream::memory_at(const void* begin, size_t offset, size_t bytes) const {
  auto* const address = static_cast<std::byte*>(const_cast<void*>(begin)) + offset;
  return options_.pages != nullptr ? options_.pages->find(address, bytes)
                                   : PageTable::Memory{address, bytes};
}

void HostStream::copy_piece(std::byte* to, const std::byte* from, size_t bytes, CopyKind kind) {
  if (kind == CopyKind::Within) {
    copy_bytes(to, from, bytes);
    ready_s_ = steady_now_s();
    return;
  }
  Link& link = kind == CopyKind::Load ? *options_.load : *options_.store;
  const Link::Ended ended = link.copy(to, from, bytes, ready_s_);
  ready_s_ = ended.ideal_s;
  done_s_ = ended.here_s;
}

void HostStream::run_call(Command& command) {
  options_.faults->check_launch(command.name);
  std::get<HostFunction>(command.function)();
  ready_s_ = steady_now_s();
}

void HostStream::fail(std::exception_ptr error) {
  if (options_.failed) options_.failed(num_finished_ + 1, error);
  QuietLock lock(mutex_);
  error_ = std::move(error);
}

}  // namespace ebb

// What the copy thread of the executor does.
#include <algorithm>

#include "scheduler/run/executor.h"

namespace ebb {

void Executor::run_copy_thread() {
  uint64_t done_generation = 0;
  for (;;) {
    uint32_t count = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || generation_ != done_generation; });
      if (stop_) return;
      done_generation = generation_;
      count = static_cast<uint32_t>(plan_->ops.size());
    }
    try {
      for (OpIndex i{0}; i < count; ++i) {
        // The plan is read before the last set(): after it, the program thread may begin the next.
        const bool submits = is_of_copy_thread(plan_->ops[i]);
        if (submits) submit_from_copy_thread(i);
        if (stop_) return;
        if (submits || i + 1 == count) mapped_.set(i + 1);
      }
    } catch (...) {
      copy_error_ = std::current_exception();
      mapped_.cancel();
      return;
    }
  }
}

void Executor::submit_from_copy_thread(OpIndex index) {
  const Op& op = plan_->ops[index];
  uint32_t num_awaited = 0;
  for (const OpIndex w : plan_->waits_of(op)) {
    if (!is_of_copy_thread(plan_->ops[w])) num_awaited = std::max(num_awaited, w + 1);
  }
  if (num_awaited > 0 && !submitted_.wait_for(num_awaited)) {
    throw LogicError("the step was cancelled");
  }
  if (op.stream == StreamKind::Parts || is_load_part(op)) return submit_of_split_load(index);
  drop_or_map(index, load());
  if (takes_no_time(op)) return;
  std::byte* const to = spaces_.address(op.chunk);
  if (is_gather(op)) {
    work_.gather(load(), op, to);
  } else {
    load().copy(to, host_address(op), layout_.used_bytes(op.chunk), CopyKind::Load);
  }
  load().record(*events_[index]);
}

/// Submits a message on the parts stream, or the load of this rank's part. They change no block.
void Executor::submit_of_split_load(OpIndex index) {
  const Op& op = plan_->ops[index];
  Stream& on = stream(op.stream);
  for_each_timed(plan_->waits_of(op), [&](OpIndex w) { on.wait(*events_[w]); });
  if (op.kind == OpKind::Move) {
    work_.load_part(on, op, op.from == Tier::Host ? host_address(op) : nullptr);
  } else {
    submit_message(op);
  }
  on.record(*events_[index]);
}

void Executor::wait_mapped(uint32_t count) {
  if (!mapped_.wait_for(count)) std::rethrow_exception(copy_error_);
}

void Executor::stop_copy_thread() noexcept {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  submitted_.cancel();
  if (copy_thread_.joinable()) copy_thread_.join();
}

}  // namespace ebb

#include "scheduler/run/speculation.h"

#include <algorithm>
#include <cmath>

#include "cpu_adam/gradient_norm.h"
#include "scheduler/search/memory_sizes.h"

namespace ebb {
namespace {

constexpr uint32_t kLongestWait = 64;

}  // namespace

Speculation::Speculation(Device& device, const Layout& layout, std::span<const ChunkRecord> chunks,
                         float max_grad_norm)
    : max_grad_norm_(max_grad_norm), log_of_(chunks.size(), nullptr) {
  const auto num = static_cast<size_t>(std::ranges::count_if(chunks, &ChunkRecord::has_undo_log));
  if (num == 0) return;
  const size_t bytes = undo_log_bytes(layout);
  memory_ = device.allocate(MemoryKind::Pageable, num * bytes, "undo logs");
  for (size_t c = 0; c < chunks.size(); ++c) {
    if (!chunks[c].has_undo_log()) continue;
    log_of_[c] = &logs_.emplace_back(std::span(memory_.data() + logs_.size() * bytes, bytes));
  }
  made_.reserve(num);
}

void Speculation::begin_step(double loss_scale) {
  loss_scale_ = loss_scale;
  made_.clear();
  num_rolled_back_ = 0;
  sum_ = 0;
  may_commit_ = steps_to_wait_ == 0;
  if (steps_to_wait_ > 0) --steps_to_wait_;
}

bool Speculation::may_commit(std::span<const double> partials) {
  sum_ += sum_in_order(partials);
  may_commit_ = may_commit_ && std::isfinite(sum_) &&
                clip_scale(std::sqrt(sum_) / loss_scale_, max_grad_norm_) == 1.0f;
  return may_commit_;
}

void Speculation::count(ChunkIndex chunk, BufferIndex gradient_buffer, bool fits) {
  if (fits) made_.push_back({chunk, gradient_buffer});
}

void Speculation::decide(bool committed) {
  if (made_.empty()) return;
  committed_ = committed;
  if (!committed) {
    num_rolled_back_ = num_made();
    steps_to_wait_ = next_wait_;
    next_wait_ = std::min(kLongestWait, 2 * next_wait_);
    return;
  }
  next_wait_ = 1;
}

bool Speculation::take_committed(ChunkIndex chunk) {
  UndoLog* const made = log(chunk);
  if (made == nullptr || !committed_ || !made->is_full()) return false;
  made->drop();
  return true;
}

}  // namespace ebb

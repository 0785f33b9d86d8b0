#include "scheduler/run/speculation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cpu_adam/gradient_norm.h"
#include "scheduler/search/memory_sizes.h"

namespace ebb {
namespace {

constexpr uint32_t kLongestWait = 64;

}  // namespace

Speculation::Speculation(Device& device, const Layout& layout, std::vector<uint32_t> chunks,
                         float max_grad_norm)
    : chunks_(std::move(chunks)), max_grad_norm_(max_grad_norm) {
  if (chunks_.empty()) return;
  const size_t bytes = undo_log_bytes(layout);
  memory_ = device.allocate(MemoryKind::Pageable, chunks_.size() * bytes, "undo logs");
  for (size_t i = 0; i < chunks_.size(); ++i) {
    logs_.emplace_back(std::span(memory_.data() + i * bytes, bytes));
  }
  made_.reserve(chunks_.size());
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

void Speculation::count(uint32_t chunk, uint32_t gradient_buffer, bool fits) {
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

size_t Speculation::index_of(uint32_t chunk) const {
  const auto at = std::ranges::lower_bound(chunks_, chunk);
  return at != chunks_.end() && *at == chunk ? static_cast<size_t>(at - chunks_.begin())
                                             : chunks_.size();
}

UndoLog* Speculation::log(uint32_t chunk) {
  const size_t i = index_of(chunk);
  return i < chunks_.size() ? &logs_[i] : nullptr;
}

bool Speculation::take_committed(uint32_t chunk) {
  UndoLog* const made = log(chunk);
  if (made == nullptr || !committed_ || !made->is_full()) return false;
  made->drop();
  return true;
}

}  // namespace ebb

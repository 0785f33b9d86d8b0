#include "cuda/failures.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "device/errors.h"
#include "system/tsan.h"

namespace ebb {

std::shared_ptr<Failures> Failures::of_process() {
  static std::mutex mutex;
  static std::weak_ptr<Failures> one;
  std::lock_guard lock(mutex);
  std::shared_ptr<Failures> failures = one.lock();
  if (failures == nullptr) one = failures = std::make_shared<Failures>();
  return failures;
}

std::pair<uint32_t, uint64_t> Failures::enter() {
  std::lock_guard lock(mutex_);
  const auto free_place = std::ranges::find(taken_, false);
  EBB_CHECK(free_place != taken_.end(), "the CUDA devices of a process have at most " +
                                            std::to_string(kMaxStreams) + " streams at a time");
  *free_place = true;
  const auto index = static_cast<uint32_t>(free_place - taken_.begin());
  return {index, last_position_[index] + 1};
}

void Failures::leave(uint32_t index, uint64_t last_position) noexcept {
  std::lock_guard lock(mutex_);
  taken_[index] = false;
  last_position_[index] = last_position;
  for (Failure& failure : failures_) {
    if (failure.index == index) failure.last = std::min(failure.last, last_position);
  }
}

void Failures::fail(const Operation& operation, std::exception_ptr error) noexcept {
  TsanHiddenLock lock(mutex_);
  const auto [index, position] = operation;
  for (const Failure& failure : failures_) {
    if (failure.index == index && position >= failure.first && position <= failure.last) return;
  }
  // Another stream may use the index now; its positions begin after the last one of this stream.
  const uint64_t left_at = last_position_[index];
  failures_.push_back({.index = index,
                       .first = position,
                       .last = position <= left_at ? left_at : UINT64_MAX,
                       .error = std::move(error)});
  any_ = true;
}

std::exception_ptr Failures::error_before(const StreamClock& point) const noexcept {
  if (!any_) return nullptr;
  TsanHiddenLock lock(mutex_);
  for (const Failure& failure : failures_) {
    const uint64_t position = point.positions[failure.index];
    if (position >= failure.first && position <= failure.last) return failure.error;
  }
  return nullptr;
}

StreamPoint::StreamPoint(Failures& failures) : failures_(failures) {
  std::tie(index_, begin_) = failures.enter();
  clock_.positions[index_] = begin_;
}

StreamPoint::~StreamPoint() { failures_.leave(index_, clock_.positions[index_]); }

void StreamPoint::fail(std::exception_ptr error) noexcept {
  failures_.fail(operation(), std::move(error));
}

void StreamPoint::fail_at(uint64_t n, std::exception_ptr error) noexcept {
  failures_.fail({index_, begin_ + n}, std::move(error));
}

}  // namespace ebb

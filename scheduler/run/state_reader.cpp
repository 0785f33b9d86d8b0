#include "scheduler/run/state_reader.h"

#include <utility>

#include "device/errors.h"
#include "scheduler/run/state.h"
#include "scheduler/run/state_lock.h"

namespace ebb {

void StateLock::open(std::vector<uint32_t> parts_of_chunk) {
  std::lock_guard lock(mutex_);
  EBB_CHECK(!is_locked_, "the state is locked already");
  parts_of_chunk_ = std::move(parts_of_chunk);
  num_released_ = 0;
  is_locked_ = true;
}

void StateLock::release(size_t num_parts) {
  {
    std::lock_guard lock(mutex_);
    EBB_CHECK(is_locked_ && num_parts >= num_released_,
              "the state is not locked, or more parameters were released before");
    num_released_ = num_parts;
  }
  changed_.notify_all();
}

void StateLock::close() noexcept {
  {
    std::lock_guard lock(mutex_);
    is_locked_ = false;
  }
  changed_.notify_all();
}

bool StateLock::is_locked() {
  std::lock_guard lock(mutex_);
  return is_locked_;
}

void StateLock::wait_for(ChunkIndex chunk) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !is_locked_ || num_released_ >= parts_of_chunk_[chunk]; });
}

bool StateLock::is_free(ChunkIndex chunk) {
  std::lock_guard lock(mutex_);
  return !is_locked_ || num_released_ >= parts_of_chunk_[chunk];
}

void StateLock::wait_for_all() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !is_locked_; });
}

StateReader::StateReader(const Layout& layout, const State& state, StateLock& lock,
                         const OptimizerCounters& counters, std::vector<ParameterId> parts)
    : layout_(&layout),
      state_(&state),
      lock_(&lock),
      counters_(counters),
      parts_(std::move(parts)) {}

StateReader::StateReader(StateReader&& other) noexcept
    : layout_(other.layout_),
      state_(other.state_),
      lock_(std::exchange(other.lock_, nullptr)),
      counters_(other.counters_),
      parts_(std::move(other.parts_)) {}

StateReader::~StateReader() {
  if (lock_ != nullptr) lock_->close();
}

void StateReader::read_masters(ParameterId id, uint64_t first, std::span<float> values) const {
  state_->read(id, first, values);
}

void StateReader::read_weights(ParameterId id, uint64_t first, std::span<float> values) const {
  state_->read_weights(id, first, values);
}

void StateReader::read_plane(ParameterId id, size_t plane, const TakeBytes& take) const {
  read_plane(id, plane, {0, layout_->num_elements(id)}, take);
}

void StateReader::read_plane(ParameterId id, size_t plane, ElementRange elements,
                             const TakeBytes& take) const {
  state_->visit_plane(id, plane, elements, false, take);
}

void StateReader::release(size_t num_parts) {
  EBB_CHECK(lock_ != nullptr && num_parts <= parts_.size(),
            "there are no more parameters to release");
  lock_->release(num_parts);
}

}  // namespace ebb

#include "scheduler/run/state_loan.h"

#include <utility>

#include "device/errors.h"
#include "scheduler/run/loan_gate.h"
#include "scheduler/run/state.h"

namespace ebb {

void LoanGate::open(std::vector<uint32_t> parts_of_chunk) {
  std::lock_guard lock(mutex_);
  EBB_CHECK(!is_lent_, "the state is lent already");
  parts_of_chunk_ = std::move(parts_of_chunk);
  num_given_back_ = 0;
  is_lent_ = true;
}

void LoanGate::give_back(size_t num_parts) {
  {
    std::lock_guard lock(mutex_);
    EBB_CHECK(is_lent_ && num_parts >= num_given_back_, "given back without a loan, or twice");
    num_given_back_ = num_parts;
  }
  changed_.notify_all();
}

void LoanGate::close() noexcept {
  {
    std::lock_guard lock(mutex_);
    is_lent_ = false;
  }
  changed_.notify_all();
}

bool LoanGate::is_lent() {
  std::lock_guard lock(mutex_);
  return is_lent_;
}

void LoanGate::wait_for(uint32_t chunk) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !is_lent_ || num_given_back_ >= parts_of_chunk_[chunk]; });
}

bool LoanGate::is_free(uint32_t chunk) {
  std::lock_guard lock(mutex_);
  return !is_lent_ || num_given_back_ >= parts_of_chunk_[chunk];
}

void LoanGate::wait_for_all() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !is_lent_; });
}

StateLoan::StateLoan(const Layout& layout, const State& state, LoanGate& gate,
                     const OptimizerCounters& counters, std::vector<ParameterId> parts)
    : layout_(&layout),
      state_(&state),
      gate_(&gate),
      counters_(counters),
      parts_(std::move(parts)) {}

StateLoan::StateLoan(StateLoan&& other) noexcept
    : layout_(other.layout_),
      state_(other.state_),
      gate_(std::exchange(other.gate_, nullptr)),
      counters_(other.counters_),
      parts_(std::move(other.parts_)) {}

StateLoan::~StateLoan() {
  if (gate_ != nullptr) gate_->close();
}

void StateLoan::read_masters(ParameterId id, uint64_t first, std::span<float> values) const {
  state_->read(id, first, values);
}

void StateLoan::read_weights(ParameterId id, uint64_t first, std::span<float> values) const {
  state_->read_weights(id, first, values);
}

void StateLoan::read_plane(ParameterId id, size_t plane, const TakeBytes& take) const {
  state_->visit_plane(id, plane, false, take);
}

void StateLoan::give_back(size_t num_parts) {
  EBB_CHECK(gate_ != nullptr && num_parts <= parts_.size(), "more than was lent");
  gate_->give_back(num_parts);
}

}  // namespace ebb

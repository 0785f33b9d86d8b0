#include "cpu_adam/undo_log.h"

#include <algorithm>
#include <limits>

#include "cpu_adam/adamw_tasks.h"
#include "cpu_adam/undo_tasks.h"
#include "device/errors.h"
#include "device/update_sizes.h"

namespace ebb {
namespace {

constexpr size_t kAlignment = 64;
static_assert(kUndoElements == kAlignment);
constexpr size_t kBlockBytes = kOutlierBlockWords * sizeof(uint32_t);

size_t bytes_of_corrections(int64_t n) {
  return (static_cast<size_t>(n) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

static_assert(sizeof(UndoTask) == 24);  // undo_log_bytes() assumes this size

UndoLog::UndoLog(std::span<std::byte> memory) : memory_(memory) {
  EBB_CHECK(reinterpret_cast<uintptr_t>(memory.data()) % kAlignment == 0,
            "the memory of a log must begin at a multiple of 64 bytes");
}

const AdamWStep& UndoLog::step() const {
  EBB_CHECK(is_full_, "an empty log has no step");
  return step_;
}

size_t UndoLog::used_bytes() const {
  return undo_log_fixed_bytes(n_) + size_t{num_taken_.load()} * kBlockBytes;
}

bool UndoTasks::begin(int64_t n, const AdamWStep& step) {
  EBB_CHECK(!log_.is_full_, "the log has an update that is neither undone nor dropped");
  const size_t before = undo_log_fixed_bytes(n);
  if (before > log_.memory_.size()) return false;
  constexpr size_t kMostBlocks = std::numeric_limits<uint32_t>::max() / 2;
  const size_t num_blocks = (log_.memory_.size() - before) / kBlockBytes;
  log_.num_blocks_ = static_cast<uint32_t>(std::min(num_blocks, kMostBlocks));
  log_.num_taken_ = 0;
  log_.n_ = n;
  log_.step_ = step;
  for (int64_t i = 0; i < num_update_tasks(n); ++i) task(i) = {.end = i * kUpdateTaskElements};
  return true;
}

void UndoTasks::fill() {
  log_.num_outliers_ = 0;
  for (int64_t i = 0; i < num_update_tasks(log_.n_); ++i)
    log_.num_outliers_ += task(i).num_outliers;
  log_.is_full_ = true;
}

uint8_t* UndoTasks::corrections() const { return reinterpret_cast<uint8_t*>(log_.memory_.data()); }

UndoTask& UndoTasks::task(int64_t i) const {
  std::byte* const tasks = log_.memory_.data() + bytes_of_corrections(log_.n_);
  return reinterpret_cast<UndoTask*>(tasks)[i];
}

uint32_t* UndoTasks::blocks() const {
  return reinterpret_cast<uint32_t*>(log_.memory_.data() + undo_log_fixed_bytes(log_.n_));
}

OutlierWriter UndoTasks::writer(UndoTask& task) const {
  return {blocks(), log_.num_blocks_, log_.num_taken_, task.first_block};
}

OutlierReader UndoTasks::reader(const UndoTask& task) const { return {blocks(), task.first_block}; }

}  // namespace ebb

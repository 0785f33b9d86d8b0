#include "device/budget.h"

#include <algorithm>
#include <string>

#include "device/errors.h"

namespace ebb {

void Budget::take(size_t bytes, std::string_view tag) {
  std::lock_guard lock(mutex_);
  if (bytes > limit_bytes_ - used_bytes_) {
    throw OutOfMemory("device", bytes, used_bytes_, limit_bytes_, std::string(tag),
                      "raise the device's memory or lower the micro-batch size");
  }
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
}

void Budget::give_back(size_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  used_bytes_ -= bytes;
}

size_t Budget::used_bytes() const {
  std::lock_guard lock(mutex_);
  return used_bytes_;
}

size_t Budget::peak_bytes() const {
  std::lock_guard lock(mutex_);
  return peak_bytes_;
}

bool Faults::asked(FaultSite site) {
  if (!ask_) return false;
  std::lock_guard lock(mutex_);
  return ask_(site);
}

void Faults::check_copy(size_t bytes) {
  if (!asked(FaultSite::Copy)) return;
  throw DeviceError("injected copy failure: " + format_bytes(bytes));
}

void Faults::check_launch(std::string_view name) {
  if (!asked(FaultSite::Launch)) return;
  throw DeviceError(std::string("injected launch failure: ").append(name));
}

void Faults::check_allocation(std::string_view kind, size_t bytes, const Budget& budget,
                              std::string_view tag) {
  if (!asked(FaultSite::Allocation)) return;
  throw OutOfMemory(std::string(kind), bytes, budget.used_bytes(), budget.limit_bytes(),
                    std::string(tag), "injected allocation failure");
}

}  // namespace ebb

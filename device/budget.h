// The memory budget of a device, and the fault injector of tests, which makes its operations fail.
//
// Thread-safety: every method may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string_view>

#include "device/device.h"

namespace ebb {

/// Counts the bytes of MemoryKind::Device against a limit, exactly.
class Budget {
 public:
  explicit Budget(size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  /// Adds `bytes` to the used bytes. Throws OutOfMemory with the numbers and adds nothing if the
  /// sum would exceed the limit.
  void take(size_t bytes, std::string_view tag);
  void give_back(size_t bytes) noexcept;

  size_t limit_bytes() const { return limit_bytes_; }
  size_t used_bytes() const;
  size_t peak_bytes() const;

 private:
  const size_t limit_bytes_;
  mutable std::mutex mutex_;
  size_t used_bytes_ = 0;
  size_t peak_bytes_ = 0;
};

/// Calls DeviceOptions::fault. A mutex allows one call at a time, so the n-th call is well defined.
class Faults {
 public:
  explicit Faults(std::function<bool(FaultSite)> ask) : ask_(std::move(ask)) {}

  /// Throw DeviceError if this copy or this launch is to fail.
  void check_copy(size_t bytes);
  void check_launch(std::string_view name);
  /// Throws OutOfMemory if this allocation is to fail.
  void check_allocation(std::string_view kind, size_t bytes, const Budget& budget,
                        std::string_view tag);

 private:
  bool asked(FaultSite site);

  std::mutex mutex_;
  std::function<bool(FaultSite)> ask_;
};

}  // namespace ebb

// What a device may hold, and the injector that makes its operations fail on purpose.
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

  /// Throws OutOfMemory with the numbers where the limit would be passed; nothing is taken then.
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

/// Asks DeviceOptions::fault, one question at a time, so that the n-th question is well defined.
class Faults {
 public:
  explicit Faults(std::function<bool(FaultSite)> ask) : ask_(std::move(ask)) {}

  /// Throw DeviceError where this copy, or launch, is to fail.
  void check_copy(size_t bytes);
  void check_launch(std::string_view name);
  /// Throws OutOfMemory where this allocation is to fail.
  void check_allocation(std::string_view kind, size_t bytes, const Budget& budget,
                        std::string_view tag);

 private:
  bool asked(FaultSite site);

  std::mutex mutex_;
  std::function<bool(FaultSite)> ask_;
};

}  // namespace ebb

// Named ranges (NVTX, domain "ebb") that GPU profilers show together with kernels and copies.
//
// Without a profiler, or if the toolkit has no NVTX headers, there is no domain and the calls do
// nothing. Thread-safe: each thread has its own stack of ranges.
#pragma once

#include "device/device.h"

struct nvtxDomainRegistration_st;

namespace ebb {

class ProfilerRanges {
 public:
  ProfilerRanges();
  ~ProfilerRanges();
  ProfilerRanges(const ProfilerRanges&) = delete;
  ProfilerRanges& operator=(const ProfilerRanges&) = delete;

  void begin(const RangeName& name) const noexcept {
    if (domain_ != nullptr) push(name);
  }
  void end() const noexcept {
    if (domain_ != nullptr) pop();
  }

 private:
  void push(const RangeName& name) const noexcept;
  void pop() const noexcept;

  nvtxDomainRegistration_st* domain_ = nullptr;
};

}  // namespace ebb

// Ranges that profilers of GPUs show beside kernels and copies (NVTX), in a domain "ebb".
//
// Where no profiler watches, or the toolkit came without NVTX's headers, there is no domain and a
// call does nothing. Thread-safe: ranges are each thread's own.
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

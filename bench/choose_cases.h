// What bench_choose asks the planner: large models on machines with a GPU, and small ones on this
// machine's host backend.
#pragma once

#include <span>
#include <string_view>

#include "scheduler/plan/simulate.h"

namespace ebb::bench {

struct LargeCase {
  std::string_view preset;
  std::string_view machine_name;
  Machine machine;
  size_t device_bytes;
  int64_t batch_size;
  uint32_t accumulation;
  bool clip = true;
};
std::span<const LargeCase> large_cases();

/// Budget and link are relative to what the case needs, so that it asks the same on any machine.
struct SmallCase {
  std::string_view preset;
  int64_t batch_size;
  int64_t length;
  uint32_t accumulation;
  /// Of the device memory between the smallest that works and all resident.
  double memory;
  /// Gradients take this part of compute's time on the way down, and weights on theirs up, if each
  /// goes once; 0: no link.
  double link;
  bool clip;
  double emulated_flops_per_s = 0;  ///< 0: the kernels compute
};
std::span<const SmallCase> small_cases();

}  // namespace ebb::bench

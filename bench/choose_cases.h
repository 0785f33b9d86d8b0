// The cases of bench_choose: large models on machines with a GPU, and small models on the host
// backend of this machine.
#pragma once

#include <span>
#include <string_view>

#include "scheduler/plan/simulate.h"

namespace ebb::bench {

/// Assumed rates of an H200, not measured ones.
inline constexpr Machine kAssumedH200{.flops_per_s = 720e12,
                                      .attention_flops_per_s = 360e12,
                                      .device_bytes_per_s = 4000e9,
                                      .load_bytes_per_s = 53e9,
                                      .store_bytes_per_s = 53e9,
                                      .update_bytes_per_s = 240e9};

struct LargeCase {
  std::string_view preset;
  std::string_view machine_name;
  Machine machine;
  size_t device_bytes;
  int64_t batch_size;
  uint32_t accumulation;
  bool clip = true;
  uint32_t num_layers = 0;  ///< 0: those of the preset
};
std::span<const LargeCase> large_cases();

/// Budget and link are relative to the needs of the case, so that the case is the same on every
/// machine.
struct SmallCase {
  std::string_view preset;
  int64_t batch_size;
  int64_t length;
  uint32_t accumulation;
  /// The device budget: 0 is the smallest that works, 1 is everything resident.
  double memory;
  /// If each gradient is stored once and each weight loaded once, each direction of the link needs
  /// this fraction of compute's time. 0: no link.
  double link;
  bool clip;
  double emulated_flops_per_s = 0;  ///< 0: the kernels compute
};
std::span<const SmallCase> small_cases();

}  // namespace ebb::bench

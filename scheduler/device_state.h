// The optimizer's state of the chunks that a plan updates on the device: momentum, variance and, of
// bf16 weights, what rounding left of the masters. It comes from home before the first step and
// goes home when somebody looks; the weights themselves are a chunk like any other.
//
// An update reads what was decided of its step when it runs: with clipping that is after the norm,
// and an update may have been submitted before.
#pragma once

#include <span>
#include <vector>

#include "chunk/layout.h"
#include "cpu_adam/adamw.h"
#include "device/device.h"

namespace ebb {

class DeviceState {
 public:
  /// `chunks` ascend.
  DeviceState(Device& device, const Layout& layout, std::vector<uint32_t> chunks);

  static constexpr size_t kMaxFactors = 64;  ///< pairs of factors that differ
  static constexpr size_t kCoefficientBytes = 2 * kMaxFactors * sizeof(AdamWCoefficients);

  /// Device memory for `num_chunks` of them.
  static size_t bytes(const Layout& layout, uint32_t num_chunks);

  std::span<const uint32_t> chunks() const { return chunks_; }
  bool has(uint32_t chunk) const;
  /// Everything but weights and gradient. REQUIRES: has(chunk).
  Planes planes(uint32_t chunk) const;
  void load(Stream& load, uint32_t chunk, const Planes& home) const;
  void store(Stream& store, uint32_t chunk, const Planes& home) const;

  /// Said of all runs that will be updated, before any is.
  void expect(const AdamWRun& run);
  /// What updates before the norm are made with, or those after it. REQUIRES: none of them runs.
  void decide(const AdamWStep& step, bool after_norm);
  /// The norm is not a number: no update after it changes anything.
  void skip();
  void submit_update(Stream& compute, Kernels& kernels, const Planes& planes, const AdamWRun& run,
                     bool after_norm) const;

 private:
  struct Factors {
    double decay_factor;
    double learning_rate_factor;
  };
  size_t find(const AdamWRun& run) const;
  std::span<AdamWCoefficients> coefficients(bool after_norm) const;
  /// Calls copy(here, at home, bytes) for each plane that there is beside the weights.
  template <class Copy>
  void for_each_plane(uint32_t chunk, const Planes& home, const Copy& copy) const;

  const Layout& layout_;
  std::vector<uint32_t> chunks_;
  Buffer planes_;
  std::vector<Factors> factors_;  // that differ
  Buffer coefficients_;           // pinned: of updates before the norm, then of those after it
};

}  // namespace ebb

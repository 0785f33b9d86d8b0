// The state of the chunks that live on the device and are updated there: beside the weights, which
// stay in their blocks, momentum, variance and, of bf16 and fp16 weights, what rounding left of the
// masters. Whoever wants to see or to change it on the host gets copies, a few MiB at a time, that
// pass through one window of pinned memory.
//
// An update reads what was decided of its step when it runs: with clipping that is after the norm,
// and an update may have been submitted before.
//
// Thread-safety: pass() by any threads, which take turns, on chunks that no update is at work on;
// the rest by the thread that trains.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "chunk/layout.h"
#include "cpu_adam/adamw.h"
#include "device/device.h"

namespace ebb {

struct StatePlanes {
  bool weight = false;
  bool remainder = false;  ///< what rounding left: Planes::low, Planes::master
  bool momentum = false;
  bool variance = false;
};

class DeviceState {
 public:
  /// `chunks` ascend; `weights`: where the device has those of element 0.
  DeviceState(Device& device, const Layout& layout, std::vector<uint32_t> chunks,
              std::byte* weights);

  std::span<const uint32_t> chunks() const { return chunks_; }
  bool has(uint32_t chunk) const;
  /// All but a gradient. REQUIRES: has(chunk).
  Planes planes(uint32_t chunk) const;

  /// Calls visit(first, copies) for elements [first, first + count) of a chunk, piece by piece:
  /// count elements of the planes that are asked for, the others null. What is `changed` there
  /// goes back. REQUIRES: has(chunk), and its block is there; visit() passes nothing itself.
  using VisitCopies = std::function<void(uint64_t first, uint64_t count, const Planes& copies)>;
  void visit_copies(uint32_t chunk, uint64_t first, uint64_t count, StatePlanes asked, bool changed,
                    const VisitCopies& visit) const;

  /// Said of all runs that will be updated, before any is.
  void expect(const AdamWRange& run);
  /// What updates before the norm are made with, or those after it. REQUIRES: none of them runs.
  void decide(const AdamWStep& step, bool after_norm);
  /// The norm is not a number: no update after it changes anything.
  void skip();
  void submit_update(Stream& compute, Kernels& kernels, const Planes& planes, const AdamWRange& run,
                     bool after_norm) const;

 private:
  struct Factors {
    double decay_factor;
    double learning_rate_factor;
  };
  size_t find(const AdamWRange& run) const;
  std::span<AdamWCoefficients> coefficients(bool after_norm) const;
  Planes planes_in(std::byte* memory, uint64_t num_elements) const;

  const Layout& layout_;
  std::vector<uint32_t> chunks_;
  std::byte* weights_;
  Buffer planes_;
  std::vector<Factors> factors_;  // that differ
  Buffer coefficients_;           // pinned: of updates before the norm, then of those after it
  Buffer window_;
  mutable std::mutex window_mutex_;
  std::unique_ptr<Stream> copies_;
};

}  // namespace ebb

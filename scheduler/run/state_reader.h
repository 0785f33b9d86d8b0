// Reads the training state while training continues, for example to write a checkpoint.
//
// A StateReader holds the state lock (state_lock.h). An update, or any other write of the state,
// waits until the reader has released the parameters that it changes. Until the reader releases a
// parameter, the parameter has the bytes that it had when the state was locked; afterwards its
// bytes may change at any time. The reader copies only state that is on the device, a few MiB at a
// time.
//
// Thread-safety: one thread uses the reader while another thread trains. The reader must be
// destroyed before its trainer. Broken contracts are LogicErrors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "chunk/layout.h"
#include "device/loss_scale.h"

namespace ebb {

class StateLock;
class State;

/// The values that a run needs, in addition to its planes, to continue with the same bits.
struct OptimizerCounters {
  int64_t num_updates = 0;            ///< Adam's t
  uint64_t num_skipped = 0;           ///< skipped steps
  uint32_t num_skipped_in_a_row = 0;  ///< counts only steps that were skipped at a loss scale of 1
  LossScale loss_scale = {};          ///< of the next step
  bool operator==(const OptimizerCounters&) const = default;
};

class StateReader {
 public:
  /// Trainer::lock_state() makes the readers.
  StateReader(const Layout& layout, const State& state, StateLock& lock,
              const OptimizerCounters& counters, std::vector<ParameterId> parts);
  StateReader(StateReader&& other) noexcept;
  StateReader& operator=(StateReader&&) = delete;
  /// Releases the state lock.
  ~StateReader();

  const Layout& layout() const { return *layout_; }
  const OptimizerCounters& counters() const { return counters_; }
  /// All parameters, in the order in which the next updates change them.
  std::span<const ParameterId> parts() const { return parts_; }
  /// Passes one plane of a parameter, or of some of its elements, to `take`, part by part, from the
  /// first byte to the last, without padding. A part is valid until `take` returns.
  /// `plane` is an index of state_planes(). `take` must not read the state.
  using TakeBytes = std::function<void(std::span<const std::byte>)>;
  void read_plane(ParameterId id, size_t plane, const TakeBytes& take) const;
  void read_plane(ParameterId id, size_t plane, ElementRange elements, const TakeBytes& take) const;
  /// Read elements [first, first + values.size()) of a parameter: the fp32 masters, or the weights
  /// that the device computes with. The values of a released parameter may change during the read.
  void read_masters(ParameterId id, uint64_t first, std::span<float> values) const;
  void read_weights(ParameterId id, uint64_t first, std::span<float> values) const;
  /// Releases the first `num_parts` of parts(): from now on updates may change them. REQUIRES:
  /// `num_parts` is not less than in the call before, and not more than parts().size().
  void release(size_t num_parts);

 private:
  const Layout* layout_;
  const State* state_;
  StateLock* lock_;
  OptimizerCounters counters_;
  std::vector<ParameterId> parts_;
};

}  // namespace ebb

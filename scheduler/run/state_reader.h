// The training state, lent to somebody who writes it down while training goes on.
//
// Nothing is copied but, a few MiB at a time, what lives on the device. An update waits until the
// parameters that it would change were given back; so do all others that write the state. The bytes
// of a parameter are those of the step after which it was lent until then, and anything afterwards.
//
// Thread-safety: one thread has the loan, another may train meanwhile. The loan ends before its
// trainer does. Broken contracts are LogicErrors.
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

/// What a run needs beside its planes to go on with the same bits.
struct OptimizerCounters {
  int64_t num_updates = 0;  ///< Adam's t
  uint64_t num_skipped = 0;
  uint32_t num_skipped_in_a_row = 0;  ///< that no smaller loss scale could answer
  LossScale loss_scale = {};          ///< of the next step
  bool operator==(const OptimizerCounters&) const = default;
};

class StateReader {
 public:
  StateReader(const Layout& layout, const State& state, StateLock& gate,
              const OptimizerCounters& counters, std::vector<ParameterId> parts);
  StateReader(StateReader&& other) noexcept;
  StateReader& operator=(StateReader&&) = delete;
  /// Gives everything back.
  ~StateReader();

  const Layout& layout() const { return *layout_; }
  const OptimizerCounters& counters() const { return counters_; }
  /// All parameters, in the order in which updates will ask for them.
  std::span<const ParameterId> parts() const { return parts_; }
  /// Calls take(bytes) with what comes next of a plane, from its first byte to its last; `plane`
  /// counts as state_planes() does. It must not look at the state itself.
  using TakeBytes = std::function<void(std::span<const std::byte>)>;
  void read_plane(ParameterId id, size_t plane, const TakeBytes& take) const;
  /// Elements [first, first + values.size()) of a parameter: its fp32 masters, or the weights that
  /// the device computes with. Of a part that was given back they may change meanwhile.
  void read_masters(ParameterId id, uint64_t first, std::span<float> values) const;
  void read_weights(ParameterId id, uint64_t first, std::span<float> values) const;
  /// The first so many parts may change from now on; no fewer than before.
  void give_back(size_t num_parts);

 private:
  const Layout* layout_;
  const State* state_;
  StateLock* gate_;
  OptimizerCounters counters_;
  std::vector<ParameterId> parts_;
};

}  // namespace ebb

// The training state, lent to somebody who writes it down while training goes on.
//
// Nothing is copied: the parts are views of where the optimizer updates them. An update waits until
// the parts that it would change were given back; so do all others that write the state. The bytes
// of a part are those of the step after which it was lent until then, and anything afterwards.
//
// Thread-safety: one thread has the loan, another may train meanwhile. The loan ends before its
// trainer does. Broken contracts are LogicErrors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "chunk/layout.h"
#include "scheduler/loss_scale.h"

namespace ebb {

class LoanGate;
class State;

/// What a run needs beside its planes to go on with the same bits.
struct OptimizerCounters {
  int64_t num_updates = 0;  ///< Adam's t
  uint64_t num_skipped = 0;
  uint32_t num_skipped_in_a_row = 0;  ///< that no smaller loss scale could answer
  LossScale loss_scale = {};          ///< of the next step
  bool operator==(const OptimizerCounters&) const = default;
};

/// One parameter: its planes in the order of home_planes().
struct StatePart {
  ParameterId parameter = 0;
  std::vector<std::span<const std::byte>> planes;
};

class StateLoan {
 public:
  StateLoan(const Layout& layout, const State& state, LoanGate& gate,
            const OptimizerCounters& counters, std::vector<StatePart> parts);
  StateLoan(StateLoan&& other) noexcept;
  StateLoan& operator=(StateLoan&&) = delete;
  /// Gives everything back.
  ~StateLoan();

  const Layout& layout() const { return *layout_; }
  const OptimizerCounters& counters() const { return counters_; }
  /// All parameters, in the order in which updates will ask for them.
  std::span<const StatePart> parts() const { return parts_; }
  /// Elements [first, first + values.size()) of a parameter: its fp32 masters, or the weights that
  /// the device computes with. Of a part that was given back they may change meanwhile.
  void read_masters(ParameterId id, uint64_t first, std::span<float> values) const;
  void read_weights(ParameterId id, uint64_t first, std::span<float> values) const;
  /// The first so many parts may change from now on; no fewer than before.
  void give_back(size_t num_parts);

 private:
  const Layout* layout_;
  const State* state_;
  LoanGate* gate_;
  OptimizerCounters counters_;
  std::vector<StatePart> parts_;
};

}  // namespace ebb

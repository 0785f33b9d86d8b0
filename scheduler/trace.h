// The trace: the moments of one optimizer step (or one evaluation), with what each uses and costs.
//
// Written by a dry run of the real model code on the simulated device, before any memory exists. It
// does not depend on chunk size, budget or residency; layout and planner turn it into a plan. A
// plain value.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "device/device.h"
#include "scheduler/arena.h"
#include "scheduler/hooks.h"
#include "scheduler/parameters.h"

namespace ebb {

struct Moment {
  std::string_view name;  ///< of the primitive; static storage
  Phase phase = Phase::Forward;
  uint32_t micro_batch = 0;
  uint32_t first_use = 0;  ///< in Trace::uses
  uint32_t num_uses = 0;
  Cost cost;
};

/// A range of the activation arena that is live in moments [first, last].
struct ActivationSpan {
  size_t offset = 0;
  size_t bytes = 0;
  uint32_t first_moment = 0;
  uint32_t last_moment = 0;
};

/// Nothing touches a live activation after moment `last_before` until moment `first_after`.
struct ActivationRest {
  uint32_t span = 0;  ///< in Trace::activations
  uint32_t last_before = 0;
  uint32_t first_after = 0;
};

struct Trace {
  std::vector<Moment> moments;
  std::vector<ParameterUse> uses;
  std::vector<ActivationSpan> activations;
  std::vector<ActivationRest> rests;  ///< by span, and of one span in order of time
  size_t arena_bytes = 0;
  size_t workspace_bytes = 0;
  std::span<const ParameterUse> uses_of(const Moment& moment) const {
    return std::span(uses).subspan(moment.first_use, moment.num_uses);
  }
  /// How the gradient of a use of this moment meets what is there.
  Write write_of(const Moment& moment, const ParameterUse& use) const;
};

/// Hooks that write a trace. Weights, sums and activations are fake addresses on the simulated
/// device. ConfigError where no machine has room for the activations, or a step has more moments
/// than are planned.
class TraceRecorder : public Hooks {
 public:
  /// `sim` is a device of kind Sim; parameters as the model declared them, weights of
  /// `weight_type`.
  TraceRecorder(Device& sim, const Parameters& parameters, DType weight_type);
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  /// For the traced code: addresses only.
  Arena& arena() { return arena_; }
  void begin_micro_batch(uint32_t micro_batch) { micro_batch_ = micro_batch; }
  void begin_moment(std::string_view name, Phase phase,
                    std::span<const ParameterUse> uses) override;
  Tensor weight(const ParameterUse& use) override;
  GradientSlot gradient(const ParameterUse& use) override;
  void end_moment() override;

  Trace take();
  /// Parameters in the order of their first use; those never used come last.
  std::vector<ParameterId> first_use_order() const;
  /// Uses of each parameter in one forward (at least 1).
  std::vector<uint32_t> num_uses() const;

 private:
  Tensor fake(const ParameterUse& use, DType type) const;
  Write next_write(const ParameterUse& use);
  void observe_arena(ArenaEvent event, size_t offset, size_t bytes);

  Device& sim_;
  const Parameters& parameters_;
  DType weight_type_;
  Arena arena_;
  Trace trace_;
  uint32_t micro_batch_ = 0;
  struct Live {
    size_t offset;
    uint32_t span;        // in trace_.activations
    ActivationRest rest;  // the last one
    bool rests = false;
  };
  std::vector<Live> live_;
  std::vector<std::vector<std::vector<RowRange>>> written_;  // [parameter][use]: apart
};

}  // namespace ebb

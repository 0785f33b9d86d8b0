// Hooks that record the trace of a dry run.
//
// Weights, gradient sums and activations are addresses on the simulated device. Nothing reads or
// writes memory at these addresses. One thread. Throws ConfigError where no machine has enough
// memory for the activations, where a step has more calls than can be planned, or where the
// gradient of a parameter is written in ranges of rows that overlap.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "autograd/arena.h"
#include "autograd/hooks.h"
#include "autograd/parameters.h"
#include "device/device.h"
#include "scheduler/plan/trace.h"

namespace ebb {

class TraceRecorder : public Hooks {
 public:
  /// `sim` is a device of kind Sim. `parameters` are those of the model. Both must outlive this
  /// object. Weights have the type `weight_type`.
  TraceRecorder(Device& sim, const Parameters& parameters, DType weight_type);
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  /// The arena for the model's tape. It hands out addresses without memory.
  Arena& arena() { return arena_; }
  /// Throws if `count` micro-batches with as many calls as micro-batch 0 has so far are too many.
  /// Otherwise recording them would take seconds and a gigabyte before the last call is refused.
  void expect_micro_batches(uint32_t count) const;
  /// The following calls belong to this micro-batch, which belongs to this group.
  void begin_micro_batch(uint32_t micro_batch, uint32_t group = 0) {
    micro_batch_ = micro_batch;
    group_ = group;
  }
  void begin_call(std::string_view name, Phase phase, std::span<const ParameterUse> uses) override;
  Tensor weight(const ParameterUse& use) override;
  GradientTarget gradient(const ParameterUse& use) override;
  void end_call() override;

  /// The recorded trace. REQUIRES: all activations are released. Call it last, and once.
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
  uint32_t micro_batch_ = 0, group_ = 0;
  size_t calls_of_first_ = 0;  // of micro-batch 0
  struct Live {
    size_t offset;
    uint32_t span;          // in trace_.activations
    IdleInterval interval;  // the last idle interval so far
    bool is_idle = false;
  };
  std::vector<Live> live_;
  // [parameter][use]: ranges, disjoint
  using Written = std::vector<std::vector<std::vector<RowRange>>>;
  std::vector<Written> written_;  // [group]
};

}  // namespace ebb

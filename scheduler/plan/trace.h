// The trace: the calls of one step or of one evaluation, with what each uses and costs.
//
// A dry run of the real model code on the simulated device writes it
// (scheduler/search/trace_recorder.h), before any memory exists. It depends on the order of the
// micro-batches, on the recomputed layers and on the placement of activations, but not on chunk
// size, budget or residency; layout and planner turn it into a plan. A plain value.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "autograd/hooks.h"
#include "chunk/index.h"
#include "device/stream.h"

namespace ebb {

using CallIndex = Index<struct CallTag>;  ///< in Trace::calls

struct Call {
  std::string_view name;  ///< of the primitive; static storage
  Phase phase = Phase::Forward;
  uint32_t micro_batch = 0;
  uint32_t group = 0;      ///< to whose gradient sums it adds
  uint32_t first_use = 0;  ///< in Trace::uses
  uint32_t num_uses = 0;
  Cost cost;
};

/// A range of the activation arena that is live in calls [first_call, last_call]. Spans that are
/// live at different times may share bytes.
struct ActivationSpan {
  size_t offset = 0;
  size_t bytes = 0;
  CallIndex first_call{0};
  CallIndex last_call{0};
};

/// No call uses a live activation between the calls `last_before` and `first_after`.
struct IdleInterval {
  uint32_t span = 0;  ///< in Trace::activations
  CallIndex last_before{0};
  CallIndex first_after{0};
};

struct Trace {
  std::vector<Call> calls;
  std::vector<ParameterUse> uses;
  std::vector<ActivationSpan> activations;
  std::vector<IdleInterval> idle_intervals;  ///< by span, then in order of time
  size_t arena_bytes = 0;                    ///< up to the highest end of a span
  size_t workspace_bytes = 0;                ///< of the call that needs the most
  std::span<const ParameterUse> uses_of(const Call& call) const {
    return std::span(uses).subspan(call.first_use, call.num_uses);
  }
  /// Whether this call stores the gradient of a use or adds it. Throws LogicError if the call does
  /// not write this gradient.
  Write write_of(const Call& call, const ParameterUse& use) const;
};

/// [parameter] does a step compute a gradient of it?
std::vector<bool> trained_parameters(const Trace& trace, uint32_t num_parameters);

}  // namespace ebb

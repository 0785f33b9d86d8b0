#include "scheduler/trace.h"

#include <algorithm>

#include "device/sim/sim_device.h"

namespace ebb {
namespace {

// Any address will do: nothing on the simulated device is ever touched.
constexpr uintptr_t kFakeBase = uintptr_t{1} << 44;

}  // namespace

TraceRecorder::TraceRecorder(Device& sim, const Parameters& parameters, DType weight_type)
    : sim_(sim), parameters_(parameters), weight_type_(weight_type), written_(parameters.size()) {
  EBB_CHECK(sim.info().kind == DeviceKind::Sim, "a trace is recorded on the simulated device");
}

void TraceRecorder::begin_moment(std::string_view name, Phase phase,
                                 std::span<const ParameterUse> uses) {
  Moment moment{.name = name,
                .phase = phase,
                .micro_batch = micro_batch_,
                .first_use = static_cast<uint32_t>(trace_.uses.size()),
                .num_uses = static_cast<uint32_t>(uses.size()),
                .cost = {}};
  trace_.uses.insert(trace_.uses.end(), uses.begin(), uses.end());
  trace_.moments.push_back(moment);
  static_cast<SimDevice&>(sim_).take();
}

Tensor TraceRecorder::fake(ParameterId parameter, DType type) const {
  return {reinterpret_cast<std::byte*>(kFakeBase), type, parameters_[parameter].shape};
}

Tensor TraceRecorder::weight(ParameterId parameter) { return fake(parameter, weight_type_); }

GradientSlot TraceRecorder::gradient(ParameterId parameter, uint32_t use) {
  std::vector<bool>& written = written_[parameter];
  if (use >= written.size()) written.resize(use + 1, false);
  const Write write = written[use] ? Write::Add : Write::Store;
  return {fake(parameter, DType::F32), write};
}

void TraceRecorder::end_moment() {
  Moment& moment = trace_.moments.back();
  moment.cost = static_cast<SimDevice&>(sim_).take();
  trace_.workspace_bytes = std::max(trace_.workspace_bytes, moment.cost.workspace_bytes);
  for (const ParameterUse& use : trace_.uses_of(moment)) {
    std::vector<bool>& written = written_[use.parameter];
    if (use.use >= written.size()) written.resize(use.use + 1, false);
    if (use.gradient) written[use.use] = true;
  }
}

void TraceRecorder::observe_arena(ArenaEvent event, size_t offset, size_t bytes) {
  const uint32_t next = static_cast<uint32_t>(trace_.moments.size());
  const uint32_t now = next == 0 ? 0 : next - 1;
  trace_.arena_bytes = std::max(trace_.arena_bytes, offset + bytes);
  if (event == ArenaEvent::Allocate) {
    live_.push_back({offset, static_cast<uint32_t>(trace_.activations.size()), {}});
    live_.back().rest.span = live_.back().span;
    trace_.activations.push_back({offset, bytes, now, now});
    return;
  }
  const auto at = std::find_if(live_.rbegin(), live_.rend(),
                               [&](const Live& live) { return live.offset == offset; });
  EBB_CHECK(at != live_.rend(), "release of an activation that was never made");
  Live& live = *at;
  if (event == ArenaEvent::Wake) {
    live.rest.first_after = next;
    live.rests = false;
    return;
  }
  // What nothing has touched since it woke, or never woke, has rested all the time.
  if (!live.rests && live.rest.first_after <= now) {
    if (live.rest.last_before + 1 < live.rest.first_after) trace_.rests.push_back(live.rest);
    live.rest.last_before = now;
  }
  live.rests = true;
  if (event == ArenaEvent::Rest) return;
  trace_.activations[live.span].last_moment = live.rest.last_before;
  live_.erase(std::next(at).base());
}

Trace TraceRecorder::take() {
  EBB_CHECK(live_.empty(), "activations outlive the step");
  std::ranges::stable_sort(trace_.rests, {}, &ActivationRest::span);
  return std::move(trace_);
}

std::vector<ParameterId> TraceRecorder::first_use_order() const {
  std::vector<bool> seen(parameters_.size(), false);
  std::vector<ParameterId> order;
  const auto visit = [&](ParameterId id) {
    if (!seen[id]) order.push_back(id);
    seen[id] = true;
  };
  for (const ParameterUse& use : trace_.uses) visit(use.parameter);
  for (ParameterId id = 0; id < parameters_.size(); ++id) visit(id);
  return order;
}

std::vector<uint32_t> TraceRecorder::num_uses() const {
  std::vector<uint32_t> counts(parameters_.size(), 1);
  for (const ParameterUse& use : trace_.uses) {
    counts[use.parameter] = std::max(counts[use.parameter], use.use + 1);
  }
  return counts;
}

}  // namespace ebb

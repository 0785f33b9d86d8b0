#include "scheduler/search/trace_recorder.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/errors.h"
#include "device/sim/sim_device.h"

namespace ebb {
namespace {

// Any address will do: nothing reads or writes memory of the simulated device.
constexpr uintptr_t kFakeBase = uintptr_t{1} << 44;
constexpr size_t kArenaBytes = size_t{1} << 62;

// More than any machine has.
constexpr size_t kMostActivationBytes = size_t{1} << 46;

// A thousand micro-batches of GPT-3 175B have fewer calls. Planning takes time and memory for each
// call.
constexpr size_t kMostCalls = size_t{1} << 22;

[[noreturn]] void throw_too_many_calls() {
  throw ConfigError(fmt::format(
      "a step or an evaluation has more than {} calls: use fewer micro-batches "
      "(`gradient_accumulation`, `evaluation_batches`), and a larger `micro_batch_size`",
      kMostCalls));
}

}  // namespace

TraceRecorder::TraceRecorder(Device& sim, const Parameters& parameters, DType weight_type)
    : sim_(sim),
      parameters_(parameters),
      weight_type_(weight_type),
      arena_(reinterpret_cast<std::byte*>(kFakeBase), kArenaBytes,
             [this](ArenaEvent event, size_t offset, size_t bytes) {
               observe_arena(event, offset, bytes);
             }) {
  EBB_CHECK(sim.info().profile.kind == DeviceKind::Sim,
            "a trace is recorded on the simulated device");
}

void TraceRecorder::expect_micro_batches(uint32_t count) const {
  if (calls_of_first_ * count > kMostCalls) throw_too_many_calls();
}

void TraceRecorder::begin_call(std::string_view name, Phase phase,
                               std::span<const ParameterUse> uses) {
  if (trace_.calls.size() == kMostCalls) throw_too_many_calls();
  Call call{.name = name,
            .phase = phase,
            .micro_batch = micro_batch_,
            .group = group_,
            .first_use = static_cast<uint32_t>(trace_.uses.size()),
            .num_uses = static_cast<uint32_t>(uses.size()),
            .cost = {}};
  for (ParameterUse use : uses) {
    if (use.gradient) use.write = next_write(use);
    trace_.uses.push_back(use);
  }
  trace_.calls.push_back(call);
  if (micro_batch_ == 0) ++calls_of_first_;
  static_cast<SimDevice&>(sim_).take();
}

Write TraceRecorder::next_write(const ParameterUse& use) {
  if (group_ >= written_.size()) written_.resize(group_ + 1, Written(parameters_.size()));
  auto& of_parameter = written_[group_][use.parameter];
  if (use.use >= of_parameter.size()) of_parameter.resize(use.use + 1);
  const Parameter& parameter = parameters_[use.parameter];
  RowRange rows = use.rows;
  if (rows.count == 0) rows = RowRange::all(parameter.shape);
  for (const RowRange& known : of_parameter[use.use]) {
    if (known == rows) return Write::Add;
    if (known.first + known.count <= rows.first || rows.first + rows.count <= known.first) continue;
    throw ConfigError(fmt::format(
        "the gradient of '{}' is written in rows {} to {} and in rows {} to {}; split a "
        "parameter into the same rows in each of its uses",
        parameter.name, known.first, known.first + known.count, rows.first,
        rows.first + rows.count));
  }
  of_parameter[use.use].push_back(rows);
  return Write::Store;
}

Tensor TraceRecorder::fake(const ParameterUse& use, DType type) const {
  return use.rows.of(
      {reinterpret_cast<std::byte*>(kFakeBase), type, parameters_[use.parameter].shape});
}

Tensor TraceRecorder::weight(const ParameterUse& use) { return fake(use, weight_type_); }

GradientTarget TraceRecorder::gradient(const ParameterUse& use) {
  return {fake(use, DType::F32), trace_.write_of(trace_.calls.back(), use)};
}

void TraceRecorder::end_call() {
  Call& call = trace_.calls.back();
  call.cost = static_cast<SimDevice&>(sim_).take();
  trace_.workspace_bytes = std::max(trace_.workspace_bytes, call.cost.workspace_bytes);
}

void TraceRecorder::observe_arena(ArenaEvent event, size_t offset, size_t bytes) {
  const CallIndex next(trace_.calls.size());
  const CallIndex now(next == 0 ? 0 : next - 1);
  trace_.arena_bytes = std::max(trace_.arena_bytes, offset + bytes);
  if (trace_.arena_bytes > kMostActivationBytes) {
    throw ConfigError(fmt::format(
        "with this `micro_batch_size` and `seq_length`, a step has activations of more than {} at "
        "once, which no machine has memory for: make one of them smaller",
        format_bytes(kMostActivationBytes)));
  }
  if (event == ArenaEvent::Allocate) {
    live_.push_back({offset, static_cast<uint32_t>(trace_.activations.size()), {}});
    live_.back().interval.span = live_.back().span;
    trace_.activations.push_back({offset, bytes, now, now});
    return;
  }
  const auto at = std::find_if(live_.rbegin(), live_.rend(),
                               [&](const Live& live) { return live.offset == offset; });
  EBB_CHECK(at != live_.rend(), "an activation is released that was never allocated");
  Live& live = *at;
  if (event == ArenaEvent::Needed) {
    live.interval.first_after = next;
    live.is_idle = false;
    return;
  }
  // An activation that is idle already stays idle, and so does one that no call has used since it
  // was needed.
  if (!live.is_idle && live.interval.first_after <= now) {
    if (live.interval.last_before + 1 < live.interval.first_after)
      trace_.idle_intervals.push_back(live.interval);
    live.interval.last_before = now;
  }
  live.is_idle = true;
  if (event == ArenaEvent::Idle) return;
  trace_.activations[live.span].last_call = live.interval.last_before;
  live_.erase(std::next(at).base());
}

Trace TraceRecorder::take() {
  EBB_CHECK(live_.empty(), "an activation was not released before the step ended");
  std::ranges::stable_sort(trace_.idle_intervals, {}, &IdleInterval::span);
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

#include <fmt/format.h>

#include <algorithm>

#include "chunk/home.h"
#include "device/driver_memory.h"
#include "device/errors.h"
#include "device/planes.h"
#include "device/sim/sim_device.h"
#include "device/staging.h"
#include "scheduler/plan/block_need.h"
#include "scheduler/plan/chunk_trace.h"
#include "scheduler/plan/validate.h"
#include "scheduler/search/inference_forward.h"
#include "scheduler/search/inference_preparation.h"
#include "scheduler/search/memory_sizes.h"
#include "scheduler/search/prepare.h"
#include "scheduler/search/trace_recorder.h"

namespace ebb {
namespace {

// If not all weights are resident, so many blocks stay free for loads that start early.
constexpr uint32_t kBlocksAhead = 2;

struct ForwardRun {
  Trace trace;
  std::vector<ParameterId> order;
};

ForwardRun dry_run(const ForwardSpec& forward, DType dtype, const DeviceProfile& device) {
  SimDevice sim({.profile = device});
  const auto compute = sim.create_stream(StreamKind::Compute);
  TraceRecorder recorder(sim, forward.model->parameters(), dtype);
  std::byte* const base = recorder.arena().base();  // never touched
  std::vector<Tensor> inputs;
  for (const InputSpec& spec : forward.model->inputs()) {
    inputs.push_back({base, spec.dtype, spec.shape});
  }
  MicroBatches micro_batches(sim, *compute, recorder, recorder.arena(), 1);
  run_forward(micro_batches, forward, inputs, results_of(forward, dtype, base),
              {base, DType::F64, {1}});
  ForwardRun run{.trace = {}, .order = recorder.first_use_order()};
  run.trace = recorder.take();
  return run;
}

Layout make_layout(const Parameters& parameters, const std::vector<ParameterId>& order,
                   const InferenceOptions& options) {
  std::vector<ParameterInfo> infos;
  for (const Parameter& p : parameters) infos.push_back({.name = p.name, .shape = p.shape});
  return Layout(std::move(infos), order, options.dtype, options.dtype, options.chunk_bytes);
}

void check_forwards(std::span<const ForwardSpec> forwards) {
  EBB_CHECK(!forwards.empty(), "an inference has at least one forward");
  const Parameters& first = forwards[0].model->parameters();
  for (const ForwardSpec& forward : forwards) {
    EBB_CHECK(forward.loss || (forward.logits_rows > 0 && forward.num_losses == 0),
              "a forward without a loss has only logits as its result");
    EBB_CHECK(forward.logits_rows == 0 || forward.num_classes > 0, "logits need num_classes");
    const Parameters& parameters = forward.model->parameters();
    EBB_CHECK(parameters.size() == first.size(), "all forwards have the same parameters");
    for (ParameterId id = 0; id < first.size(); ++id) {
      EBB_CHECK(parameters[id].name == first[id].name && parameters[id].shape == first[id].shape,
                "all forwards have the same parameters");
    }
  }
}

/// Adds a persistent input unless another forward has added it.
void add_persistent(std::vector<InputSpec>& persistent, const InputSpec& spec) {
  const auto found = std::ranges::find(persistent, spec.name, &InputSpec::name);
  if (found == persistent.end()) return persistent.push_back(spec);
  EBB_CHECK(
      found->shape == spec.shape && found->dtype == spec.dtype,
      fmt::format("persistent input '{}' has another type or shape in another forward", spec.name));
}

/// Counts all device memory that is not in blocks, and the sizes of inputs and results.
void count_fixed(PreparedInference& p) {
  size_t persistent_bytes = 0;
  for (const auto& prepared : p.forwards) {
    const ForwardSpec& forward = prepared.forward;
    size_t bytes = 0;
    for (const InputSpec& spec : forward.model->inputs()) {
      spec.persistent ? add_persistent(p.persistent, spec)
                      : void(bytes += padded_bytes(spec.shape, spec.dtype));
    }
    p.input_bytes = std::max(p.input_bytes, bytes);
    const size_t losses =
        forward.num_losses > 0 ? padded_bytes({forward.num_losses}, DType::F32) : size_t{0};
    const size_t logits = padded_bytes({forward.logits_rows, forward.num_classes}, p.options.dtype);
    p.result_bytes = std::max(p.result_bytes, losses + logits);
    p.workspace_bytes = std::max(p.workspace_bytes, prepared.trace.workspace_bytes);
    p.arena_bytes = std::max(p.arena_bytes, prepared.trace.arena_bytes);
  }
  for (const InputSpec& spec : p.persistent)
    persistent_bytes += padded_bytes(spec.shape, spec.dtype);
  p.ledger.add(kInputs, Tier::Device, p.input_bytes);
  p.ledger.add("persistent inputs", Tier::Device, persistent_bytes);
  p.ledger.add(kWorkspace, Tier::Device, p.workspace_bytes);
  p.ledger.add(kLosses, Tier::Device, sizeof(double));
}

[[noreturn]] void throw_too_large(const PreparedInference& p, size_t budget,
                                  const BlockNeed& need) {
  throw PlanError(with_table(
      fmt::format(
          "the plan does not fit: device memory {} ({} bytes), the smallest that works is {} ({} "
          "bytes). The largest call is '{}', with {} blocks of {}; the other memory",
          format_bytes(budget), budget, format_bytes(p.smallest_device_bytes),
          p.smallest_device_bytes, need.call, need.num_blocks,
          format_bytes(p.layout->chunk_bytes())),
      p.ledger.table()));
}

/// Throws PlanError if host memory, or host and device memory together, are too small.
void check_home(const PreparedInference& p, const Budgets& budgets) {
  const size_t home = p.ledger.total(Tier::Host), device = p.ledger.total(Tier::Device);
  if (budgets.host_memory && home > *budgets.host_memory) {
    throw PlanError(with_table(
        fmt::format("the plan does not fit: host memory {} ({} bytes), the smallest that works is "
                    "{} ({} bytes)",
                    format_bytes(*budgets.host_memory), *budgets.host_memory, format_bytes(home),
                    home),
        p.ledger.table()));
  }
  if (budgets.total_memory && home + device > *budgets.total_memory) {
    throw PlanError(with_table(
        fmt::format("the plan does not fit: it needs {} of host memory and {} on the host device, "
                    "together {}, but this machine has only {}",
                    format_bytes(home), format_bytes(device), format_bytes(home + device),
                    format_bytes(*budgets.total_memory)),
        p.ledger.table()));
  }
}

/// The blocks of the largest call of all forwards.
BlockNeed need_of(const PreparedInference& p, std::span<const ChunkTrace> chunk_traces) {
  BlockNeed most;
  for (size_t i = 0; i < chunk_traces.size(); ++i) {
    const BlockNeed need = smallest_need(chunk_traces[i], p.forwards[i].trace);
    if (need.num_blocks > most.num_blocks) most = need;
  }
  return most;
}

void make_plans(PreparedInference& p, std::span<const ChunkTrace> chunk_traces) {
  for (size_t i = 0; i < chunk_traces.size(); ++i) {
    auto& forward = p.forwards[i];
    PlanOptions options{.num_blocks = p.num_blocks, .update = false};
    options.schedule.resident_chunks = p.resident_chunks;
    forward.plan = make_plan(chunk_traces[i], forward.trace, *p.layout, options);
    const std::vector<std::string> faults =
        validate(forward.plan, forward.trace, *p.layout, options);
    if (!faults.empty()) {
      throw LogicError(
          fmt::format("the plan is wrong in {} places, first: {}", faults.size(), faults[0]));
    }
    forward.warm_up_plan = make_warm_up_plan(forward.plan, *p.layout);
    forward.flush_plan = make_flush_plan(forward.plan);
  }
}

}  // namespace

PreparedInference prepare_inference(std::span<const ForwardSpec> forwards,
                                    const InferenceOptions& options, const Budgets& budgets) {
  check_forwards(forwards);
  PreparedInference p;
  p.options = options;
  p.device = counted_device(budgets);
  p.device.attention.reset();  // the workspace is large enough for all attention kernels
  std::vector<ChunkTrace> chunk_traces;
  for (const ForwardSpec& forward : forwards) {
    ForwardRun run = dry_run(forward, options.dtype, p.device);
    if (!p.layout) {
      p.layout = std::make_shared<const Layout>(
          make_layout(forward.model->parameters(), run.order, options));
    }
    chunk_traces.push_back(make_chunk_trace(run.trace, *p.layout, false));
    p.forwards.push_back({.forward = forward, .trace = std::move(run.trace)});
  }
  count_fixed(p);
  const BlockNeed need = need_of(p, chunk_traces);
  // All weights are resident with so many blocks, besides the largest activations of a forward.
  uint32_t most_activations = 0;
  for (const auto& forward : p.forwards) {
    most_activations =
        std::max(most_activations, num_arena_chunks(forward.trace, options.chunk_bytes));
  }
  const size_t fixed = p.ledger.total(Tier::Device), chunk_bytes = p.layout->chunk_bytes();
  const uint32_t resident = std::max(need.num_blocks, p.layout->num_chunks() + most_activations);
  p.smallest_device_bytes = fixed + need.num_blocks * chunk_bytes;
  p.full_device_bytes = fixed + resident * chunk_bytes;
  const size_t budget = budgets.device_memory.value_or(p.full_device_bytes);
  if (budget < p.smallest_device_bytes) throw_too_large(p, budget, need);
  p.num_blocks = static_cast<uint32_t>(std::min<size_t>((budget - fixed) / chunk_bytes, resident));
  const uint32_t spare = p.num_blocks - need.num_blocks;
  p.resident_chunks =
      p.num_blocks >= resident ? p.layout->num_chunks() : spare - std::min(spare, kBlocksAhead);
  make_plans(p, chunk_traces);
  p.ledger.add("chunk blocks", Tier::Device, p.num_blocks * chunk_bytes);
  const std::span<const PlaneInfo> weights = state_planes(options.dtype).first(1);
  add_home(p.ledger, *p.layout, weights, {});
  p.ledger.add(kInputs, Tier::Host, p.input_bytes);
  p.ledger.add("losses and logits", Tier::Host, p.result_bytes);
  p.ledger.add(kLosses, Tier::Host, sizeof(double));
  if (p.device.kind == DeviceKind::Cuda) {
    const size_t pinned_buffers[] = {p.input_bytes, sizeof(double), p.result_bytes};
    const size_t home_bytes = copied_bytes(*p.layout, weights, {});
    p.ledger.add("staging buffers", Tier::Host,
                 planned_staging_bytes(p.device.pinned_bytes, pinned_buffers, home_bytes));
    p.ledger.add(kDriver, Tier::Host,
                 driver_host_bytes(std::min(p.device.pinned_bytes, home_bytes)));
  }
  check_home(p, budgets);
  return p;
}

}  // namespace ebb

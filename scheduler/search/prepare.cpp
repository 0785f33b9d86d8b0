#include "scheduler/search/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "autograd/micro_batches.h"
#include "device/driver_memory.h"
#include "device/planes.h"
#include "device/sim/sim_device.h"
#include "device/staging.h"
#include "scheduler/plan/block_need.h"
#include "scheduler/plan/chunk_trace.h"
#include "scheduler/plan/sum_slots.h"
#include "scheduler/plan/validate.h"
#include "scheduler/search/choose.h"
#include "scheduler/search/memory_sizes.h"
#include "scheduler/search/trace_recorder.h"
#include "system/cores.h"

namespace ebb {
namespace {

struct DryRun {
  Trace trace;
  std::vector<ParameterId> order;
  std::vector<uint32_t> num_uses;
};

/// `group_of`: of each micro-batch; empty: all belong to group 0.
DryRun dry_run(const Model& model, const TrainerOptions& options, const TapeOptions& tape,
               uint32_t count, uint32_t together, const DeviceProfile& device,
               std::span<const uint32_t> group_of = {}) {
  SimDevice sim({.profile = device});
  const auto compute = sim.create_stream(StreamKind::Compute);
  TraceRecorder recorder(sim, model.parameters(), options.dtype);
  std::byte* const base = recorder.arena().base();  // never touched
  MicroBatches micro_batches(sim, *compute, recorder, recorder.arena(), together);
  std::vector<Tensor> inputs;
  for (uint32_t k = 0; k < count; ++k) {
    for (const InputSpec& spec : model.inputs()) inputs.push_back({base, spec.dtype, spec.shape});
  }
  micro_batches.run(
      model,
      {.count = count, .tape = tape, .inputs = inputs, .losses = {base, DType::F64, {count}}},
      [&](uint32_t k) {
        if (k == 1) recorder.expect_micro_batches(count);
        recorder.begin_micro_batch(k, group_of.empty() ? 0 : group_of[k]);
      });
  DryRun result{.trace = {}, .order = recorder.first_use_order(), .num_uses = recorder.num_uses()};
  result.trace = recorder.take();
  return result;
}

Layout make_layout(const Model& model, const TrainerOptions& options, uint32_t groups_apart,
                   const DryRun& run) {
  std::vector<ParameterInfo> infos;
  for (ParameterId id = 0; id < model.parameters().size(); ++id) {
    const Parameter& p = model.parameters()[id];
    infos.push_back({.name = p.name,
                     .shape = p.shape,
                     .decay = p.shape.rank() >= 2,
                     .learning_rate_factor = p.learning_rate_factor,
                     .num_uses = run.num_uses[id]});
  }
  return Layout(std::move(infos), run.order, options.dtype,
                options.gradient_dtype.value_or(options.dtype), options.chunk_bytes, groups_apart);
}

/// Throws ConfigError unless each parameter gets gradients in all its uses and rows, or in none.
/// Gradients are rounded from all gradient sums, also from those that no call has written.
void check_uses(const Trace& trace, const Layout& layout) {
  // [parameter][use]: elements
  std::vector<std::vector<uint64_t>> written(layout.num_parameters());
  for (ParameterId id = 0; id < layout.num_parameters(); ++id) {
    written[id].resize(layout.parameter(id).num_uses, 0);
  }
  for (const Call& call : trace.calls) {
    if (call.group != 0) continue;  // all groups have the same uses
    for (const ParameterUse& use : trace.uses_of(call)) {
      if (!use.gradient || use.write == Write::Add) continue;
      written[use.parameter][use.use] += layout.weight_elements(use.parameter, use.rows).count;
    }
  }
  for (ParameterId id = 0; id < layout.num_parameters(); ++id) {
    const uint64_t all = layout.num_elements(id);
    const auto whole = std::count(written[id].begin(), written[id].end(), all);
    for (const uint64_t count : written[id]) {
      if (count == 0 || count == all) continue;
      throw ConfigError(
          fmt::format("the gradient of '{}' is written for {} of its {} elements; use all its "
                      "rows, or declare a parameter of its own for the others",
                      layout.parameter(id).name, count, all));
    }
    if (whole == 0 || whole == std::ssize(written[id])) continue;
    throw ConfigError(
        fmt::format("parameter '{}' is used {} times and gets a gradient in {} of them; use it "
                    "with a gradient in "
                    "all of them, or declare a parameter of its own for the others",
                    layout.parameter(id).name, written[id].size(), whole));
  }
}

/// Limits the uses of chunks, because the time and the memory of planning grow with them. Chunks of
/// the default size are not limited: their uses follow from the size of the model.
void check_num_chunk_uses(const Trace& trace, const Layout& layout) {
  constexpr uint64_t kMostUses = uint64_t{1} << 20;
  const size_t chunk_bytes = layout.chunk_bytes();
  if (chunk_bytes >= TrainerOptions{}.chunk_bytes) return;
  uint64_t bytes = 0;
  for (const ParameterUse& use : trace.uses) {
    const uint64_t elements = layout.weight_elements(use.parameter, use.rows).count;
    bytes += elements * size_of(use.gradient ? DType::F32 : layout.weight_type());
  }
  for (const ActivationSpan& activation : trace.activations) bytes += activation.bytes;
  if (bytes / chunk_bytes <= kMostUses) return;
  throw ConfigError(fmt::format(
      "a step uses chunks of {} {} times, and a plan may have {} uses: give a chunk size of at "
      "least {} (`chunk_bytes`), or fewer micro-batches (`gradient_accumulation`)",
      format_bytes(chunk_bytes), bytes / chunk_bytes, kMostUses,
      format_bytes(
          std::min<uint64_t>(std::bit_ceil(bytes / kMostUses + 1), TrainerOptions{}.chunk_bytes))));
}

PlanOptions plan_options(const Preparation& context, const Schedule& schedule, uint32_t num_blocks,
                         bool update) {
  return {.num_blocks = num_blocks,
          .update = update,
          .update_after_norm = updates_after_norm(context.options),
          .delayed_updates = context.options.delayed_updates,
          .schedule = schedule,
          .division = context.division};
}

/// Device memory for the state of so many chunks, besides their blocks.
size_t state_beside_blocks(const Preparation& p, uint32_t num_chunks) {
  return p.division.sums_on_devices ? owner_state_bytes(*p.layout, num_chunks)
                                    : device_state_bytes(*p.layout, num_chunks);
}

/// The number of blocks in the budget besides the planes of `device_updates` chunks, but no more
/// than a plan can use.
uint32_t blocks_beside(const Preparation& p, uint32_t device_updates) {
  const size_t state_bytes = state_beside_blocks(p, device_updates);
  const size_t left = p.block_memory_bytes - std::min(p.block_memory_bytes, state_bytes);
  const size_t useful = p.full_blocks + (p.division.sums_on_devices ? 0 : device_updates);
  return static_cast<uint32_t>(std::min(left / p.layout->chunk_bytes(), useful));
}

void check_plan(const Plan& plan, const Trace& trace, const Layout& layout,
                const PlanOptions& options) {
  const std::vector<std::string> faults = validate(plan, trace, layout, options);
  if (!faults.empty()) {
    throw LogicError(
        fmt::format("the plan is wrong in {} places, first: {}", faults.size(), faults[0]));
  }
}

/// A table of the device memory that the largest call needs.
std::string need_by_class(const BlockNeed& need, const Ledger& fixed, size_t chunk_bytes) {
  std::string text = fmt::format("  {:<20} {:>12}\n", "chunk size", format_bytes(chunk_bytes));
  for (int s = 0; s < kNumSpaces; ++s) {
    text += fmt::format("  {:<20} {:>12}  in {} blocks\n", name_of(static_cast<Space>(s)),
                        format_bytes(need.by_space[s] * chunk_bytes), need.by_space[s]);
  }
  for (const LedgerEntry& e : fixed.entries()) {
    text += fmt::format("  {:<20} {:>12}\n", e.name, format_bytes(e.bytes));
  }
  return text;
}

ChunkTrace chunk_trace_of_evaluation(const Preparation& p) {
  return make_chunk_trace(p.evaluation_trace, *p.layout, false);
}

/// The blocks of the largest call of training and evaluation.
BlockNeed need_of(const Preparation& p, const ChunkTrace& evaluating) {
  const BlockNeed need = smallest_need(*p.chunk_trace, p.trace);
  const BlockNeed evaluation = smallest_need(evaluating, p.evaluation_trace);
  return evaluation.num_blocks > need.num_blocks ? evaluation : need;
}

}  // namespace

std::vector<ObservedLayer> observe_layers(const Model& model, const TrainerOptions& options,
                                          const Budgets& budgets) {
  LayerObserver observer;
  TapeOptions tape = tape_options(options, {}, {}, true);
  tape.observer = &observer;
  const Trace trace = dry_run(model, options, tape, 1, 1, counted_device(budgets)).trace;
  std::vector<ObservedLayer> layers = observer.layers();
  for (ObservedLayer& layer : layers) {
    for (ObservedCall& call : layer.calls) call.cost = trace.calls[call.place].cost;
  }
  return layers;
}

// With the square root, about as many activations are kept between groups as exist inside one
// group.
Recompute resolve(const RecomputeRequest& request, const Model& model) {
  if (const auto* const recompute = std::get_if<Recompute>(&request)) return *recompute;
  const double root = std::sqrt(model.num_layers());
  return recompute_together(static_cast<uint32_t>(std::max(1L, std::lround(root))));
}

DeviceProfile counted_device(const Budgets& budgets) {
  DeviceProfile device = budgets.device;
  if (device.num_threads <= 0) device.num_threads = num_usable_cores();
  return device;
}

Preparation prepare_context(const Model& model, const TrainerOptions& options,
                            const Schedule& schedule, const Budgets& budgets,
                            std::span<const ObservedLayer> layers) {
  Preparation p;
  p.options = options;
  p.schedule = schedule;
  p.device = counted_device(budgets);
  p.layer_lists = recompute_lists(schedule.recompute, layers);
  const RankPlace& place = budgets.place;
  p.division = division_of(options, place);
  p.division.sums_on_devices = schedule.sums_on_devices;
  p.division.splits_loads = schedule.splits_loads;
  p.share = share_of(p.division, place.rank);
  p.evaluation_batches = part_of(options.evaluation_batches, place.rank, place.num_ranks);
  const bool are_groups_apart = p.division.stores_groups();
  const auto run_dry = [&](uint32_t count, bool training) {
    return dry_run(
        model, options, tape_options(options, schedule, p.layer_lists, training), count,
        micro_batches_together(schedule, count), p.device,
        training && are_groups_apart ? std::span(p.share.group_of) : std::span<const uint32_t>());
  };
  DryRun run = run_dry(p.share.micro_batches.count, true);
  p.num_layers = model.num_layers();
  const uint32_t groups_apart = are_groups_apart ? p.share.groups.count : 1;
  p.layout = std::make_shared<const Layout>(make_layout(model, options, groups_apart, run));
  p.trace = std::move(run.trace);
  check_uses(p.trace, *p.layout);
  check_num_chunk_uses(p.trace, *p.layout);
  if (p.evaluation_batches.count > 0) {
    p.evaluation_trace = run_dry(p.evaluation_batches.count, false).trace;
  }
  for (const Call& m : p.trace.calls) p.flops += m.cost.flops;

  const size_t chunk_bytes = p.layout->chunk_bytes();
  p.ledger = fixed_memory(model, most_micro_batches(p), *p.layout, p.trace, p.evaluation_trace);
  p.chunk_trace =
      std::make_shared<const ChunkTrace>(make_chunk_trace(p.trace, *p.layout, true, p.division));
  if (p.division.sums_on_devices) {
    const uint32_t slots = count_sum_slots(*p.chunk_trace, *p.layout, num_adders(p.division));
    p.ledger.add(kSumsOfGroups, Tier::Device,
                 sum_slot_bytes(*p.layout, p.division, slots) +
                     device_adder_bytes(*p.layout, p.device.kind));
    p.ledger.add(kSumsOfGroups, Tier::Host, adder_pinned_bytes(p));
  }
  p.ledger.add(kSumsOfGroups, Tier::Device, rounded_sum_bytes(*p.layout, p.division));
  p.ledger.add(kPartSlotClass, Tier::Device, memory_of_part_slots(*p.layout, p.division));
  p.fixed_ledger = p.ledger;
  const size_t fixed_bytes = p.ledger.total(Tier::Device);
  const ChunkTrace evaluating = chunk_trace_of_evaluation(p);
  p.smallest_blocks = need_of(p, evaluating).num_blocks;
  p.full_blocks = std::max(peak_of_chunks(*p.chunk_trace), peak_of_chunks(evaluating));
  p.smallest_device_bytes = fixed_bytes + p.smallest_blocks * chunk_bytes;
  p.full_device_bytes = fixed_bytes + p.full_blocks * chunk_bytes;
  const size_t budget = budgets.device_memory.value_or(p.full_device_bytes);
  p.block_memory_bytes = budget > fixed_bytes ? budget - fixed_bytes : 0;
  p.num_blocks = blocks_beside(p, 0);
  return p;
}

namespace {

/// The most chunks that a rank owns.
uint32_t most_of_owner(const Layout& layout, const Division& division) {
  const uint32_t num_ranks = division.place.num_ranks;
  return (layout.num_chunks() + num_ranks - 1) / num_ranks;
}

/// Can the bounce buffer be pinned, together with the other small buffers and the smallest staging
/// buffers?
bool can_pin_window(const Preparation& p) {
  if (p.device.kind != DeviceKind::Cuda) return true;
  return p.ledger.bytes(kInputs, Tier::Device) + kCoefficientBytes + adder_pinned_bytes(p) +
             bounce_buffer_bytes(*p.layout) + staging_bytes(kSmallestStagingSlotBytes) <=
         p.device.pinned_bytes;
}

}  // namespace

uint32_t most_device_updates(const Preparation& p) {
  const bool on_owners = p.division.sums_on_devices;
  if (p.options.delayed_updates) return 0;
  // Ranks of other machines could not copy the weights.
  if (p.division.place.num_machines > 1) return 0;
  if ((p.division.stores_groups() && !on_owners) || !can_pin_window(p)) return 0;
  const uint32_t blocks =
      on_owners ? 0 : blocks_of_device_update(*p.layout, updates_after_norm(p.options));
  uint32_t num = 0;
  while (num < most_of_owner(*p.layout, p.division) &&
         blocks_beside(p, num + 1) >= p.smallest_blocks + (num + 1) * blocks) {
    ++num;
  }
  return num;
}

bool have_same_context(const Schedule& a, const Schedule& b) {
  return a.micro_batch_order == b.micro_batch_order && a.recompute == b.recompute &&
         a.activations == b.activations && a.sums_on_devices == b.sums_on_devices &&
         a.splits_loads == b.splits_loads;
}

std::string with_table(std::string_view message, std::string_view table) {
  while (table.ends_with('\n')) table.remove_suffix(1);
  return fmt::format("{}:\n{}", message, table);
}

void throw_too_large_for_device(const Preparation& p, size_t budget) {
  const BlockNeed need = need_of(p, chunk_trace_of_evaluation(p));
  throw PlanError(with_table(
      fmt::format(
          "the plan does not fit: device memory {} ({} bytes), the smallest that works is {} ({} "
          "bytes) with chunks of {}. The largest call is '{}'",
          format_bytes(budget), budget, format_bytes(p.smallest_device_bytes),
          p.smallest_device_bytes, format_bytes(p.layout->chunk_bytes()), need.call),
      need_by_class(need, p.ledger, p.layout->chunk_bytes())));
}

Plan plan_step(const Preparation& context, const Schedule& requested) {
  Schedule schedule = requested;
  schedule.device_updates = std::min(requested.device_updates, most_device_updates(context));
  const uint32_t num_blocks = blocks_beside(context, schedule.device_updates);
  return make_plan(*context.chunk_trace, context.trace, *context.layout,
                   plan_options(context, schedule, num_blocks, true));
}

Schedule schedule_of(const Plan& plan, Schedule asked) {
  const uint32_t num_on_device = plan.count(&ChunkRecord::is_on_device);
  asked.device_updates = num_on_device;
  // The number for each rank, so that all ranks have the same, also those that own fewer chunks.
  const std::vector<ChunkIndex> on_owners = plan.chunks_that(&ChunkRecord::is_on_owner);
  if (!on_owners.empty()) {
    asked.device_updates = on_owners.back() / plan.division.place.num_ranks + 1;
  }
  asked.resident_chunks = plan.count(&ChunkRecord::ends_on_device) - num_on_device;
  asked.kept_sums = plan.count(&ChunkRecord::has_kept_sums);
  asked.speculated_chunks = plan.count(&ChunkRecord::is_speculative);
  return asked;
}

namespace {

/// Does this rank, or another one, have the state of chunks on its device?
bool has_state_on_devices(const Plan& plan) {
  return std::ranges::any_of(plan.chunks,
                             [](const ChunkRecord& chunk) { return chunk.tier != Tier::Host; });
}

/// The part of the home that is pinned if the limit allows it.
size_t pinned_home_bytes(const Preparation& p, const Plan& plan) {
  return copied_bytes(*p.layout, state_planes(p.options.dtype), home_options(plan));
}

/// The size of the staging buffers; 0 on the host backend, or if the home can be pinned completely.
size_t ring_bytes(const Preparation& p, const Plan& plan, size_t input_bytes) {
  if (p.device.kind != DeviceKind::Cuda) return 0;
  const bool updates = has_state_on_devices(plan);
  const size_t pinned_buffers[] = {input_bytes, sizeof(double), updates ? kCoefficientBytes : 0,
                                   updates ? bounce_buffer_bytes(*p.layout) : 0,
                                   adder_pinned_bytes(p)};
  return planned_staging_bytes(p.device.pinned_bytes, pinned_buffers, pinned_home_bytes(p, plan));
}

/// What the driver and its libraries take on the host; 0 on the host backend.
size_t driver_bytes(const Preparation& p, const Plan& plan) {
  if (p.device.kind != DeviceKind::Cuda) return 0;
  return driver_host_bytes(std::min(p.device.pinned_bytes, pinned_home_bytes(p, plan)));
}

}  // namespace

Ledger ledger_with(const Preparation& context, const Plan& plan) {
  Ledger ledger = context.fixed_ledger;
  const size_t input_bytes = ledger.bytes(kInputs, Tier::Device);
  ledger.add("chunk blocks", Tier::Device, plan.num_blocks * context.layout->chunk_bytes());
  if (has_state_on_devices(plan)) {
    const uint32_t num = plan.count(&ChunkRecord::has_device_state);
    ledger.add("state on the device", Tier::Device, state_beside_blocks(context, num));
    ledger.add("coefficients", Tier::Host, kCoefficientBytes);
    ledger.add("bounce buffer", Tier::Host, bounce_buffer_bytes(*context.layout));
  }
  if (const uint32_t num = plan.count(&ChunkRecord::has_undo_log); num > 0) {
    ledger.add("undo logs", Tier::Host, num * undo_log_bytes(*context.layout));
  }
  add_home(ledger, *context.layout, state_planes(context.options.dtype), home_options(plan));
  ledger.add("copied sums", Tier::Host,
             num_far_portions(*context.layout, plan.division) *
                 plan.division.stored_bytes(kFarPortionElements * sizeof(float)));
  ledger.add(kInputs, Tier::Host, input_bytes);
  ledger.add(kLosses, Tier::Host, ledger.bytes(kLosses, Tier::Device));
  ledger.add("staging buffers", Tier::Host, ring_bytes(context, plan, input_bytes));
  ledger.add(kDriver, Tier::Host, driver_bytes(context, plan));
  return ledger;
}

void complete(Preparation& p, Plan plan) {
  const Layout& layout = *p.layout;
  p.ledger = ledger_with(p, plan);
  p.plan = std::move(plan);
  p.num_blocks = p.plan.num_blocks;
  p.schedule = schedule_of(p.plan, p.schedule);
  check_plan(p.plan, p.trace, layout, plan_options(p, p.schedule, p.num_blocks, true));
  EBB_CHECK(!p.division.sums_on_devices ||
                p.plan.sum_slots == count_sum_slots(*p.chunk_trace, layout, num_adders(p.division)),
            "the plan has another number of sum slots than was counted");
  p.initialise_plan = make_initialise_plan(p.plan);
  p.flush_plan = make_flush_plan(p.plan);
  p.warm_up_plan = make_warm_up_plan(p.plan, layout);
  p.chunk_trace.reset();
  if (p.evaluation_batches.count == 0) return;
  PlanOptions evaluation = plan_options(p, p.schedule, p.num_blocks, false);
  evaluation.schedule.resident_chunks = 0;  // a step leaves other chunks resident
  evaluation.chunks_of_step = p.plan.chunks;
  p.evaluation_plan = make_plan(p.evaluation_trace, layout, evaluation);
  check_plan(p.evaluation_plan, p.evaluation_trace, layout, evaluation);
}

}  // namespace ebb

#include "tools/plan_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "device/host/parallel.h"
#include "tools/cli.h"
#include "tools/flag_values.h"
#include "tools/machine.h"
#include "tools/train_setup.h"

namespace ebb {
namespace {

constexpr Choice<Sweep> kSweeps[] = {{"device-memory", Sweep::DeviceMemory},
                                     {"step-tokens", Sweep::StepTokens}};

PlannedMachine this_machine(const TrainOptions& options, const DeviceOptions& device) {
  const size_t usable_bytes = read_memory_limits().usable_bytes();
  const ModelSource source = model_source(options);
  return {.name = "this",
          .device = read_machine().cpu,
          .device_memory_bytes = usable_bytes,
          .host_memory_bytes = usable_bytes,
          .rates = rates_for(options, source, batch_shape(options, source), device).machine};
}

}  // namespace

void add_plan_flags(CLI::App& app, PlanRequest& request) {
  add_planned_flags(app, request.options);
  FlagGroup group{app, "Plan"};
  group.add("--machine", "this|NAME|FILE [this]",
            fmt::format(
                "plan for this machine, measured; for a preset ({}); or for what a file says",
                fmt::join(machine_presets() | std::views::transform(&PlannedMachine::name), ", ")),
            [&request](std::string_view, std::string_view text) { request.machine_name = text; });
  group.add("--write-machine", "FILE", "write the machine's numbers, for --machine elsewhere",
            [&request](std::string_view, std::string_view text) { request.write_machine = text; });
  group.add("--sweep", "device-memory|step-tokens",
            "a table of plans: for device budgets from the smallest that works, or for more and "
            "more micro-batches a step",
            [&request](std::string_view flag, std::string_view text) {
              request.sweep = choice_value<Sweep>(flag, text, kSweeps);
            });
  group.add("--html", "FILE", "the simulated step as a page: lanes, chunks, memory, stalls",
            [&request](std::string_view, std::string_view text) { request.html = text; });
  group.add_flag("--json", "the result as JSON", [&request] { request.json = true; });
}

void validate(const PlanRequest& request) {
  validate_planned(request.options);
  const bool here = request.machine_name == "this";
  const bool emulates = request.options.link.load_bytes_per_s > 0 || request.options.pretend;
  if (!here && emulates) {
    throw ConfigError(
        "--link and --pretend change what this machine measures: allowed with --machine this; "
        "elsewhere write other rates into the machine's file");
  }
  if (request.sweep != Sweep::None && !request.html.empty()) {
    throw ConfigError("--html shows one step, --sweep plans many: give one of them");
  }
  if (request.sweep == Sweep::DeviceMemory && request.options.device_memory) {
    throw ConfigError(
        fmt::format("--sweep device-memory goes through device budgets: --device-memory {} has no "
                    "meaning there",
                    format_bytes(*request.options.device_memory)));
  }
}

PlanGround plan_ground(const PlanRequest& request) {
  const TrainOptions& options = request.options;
  if (request.machine_name != "this")
    return {.machine = find_machine(request.machine_name), .device = DeviceKind::Cuda};
  const DeviceOptions device = device_options(options);
  PlanGround ground{
      .machine = this_machine(options, device),
      .num_threads = options.threads > 0 ? static_cast<int>(options.threads) : num_usable_cores(),
      .device = device.kind};
  if (device.kind == DeviceKind::Host) ground.total_memory_bytes = ground.machine.host_memory_bytes;
  return ground;
}

PlannedStep plan_step_of(const TrainOptions& options, const PlanGround& ground) {
  PlannedStep step;
  const ModelSource source = model_source(options);
  step.model_name = source.name;
  step.num_parameters = num_parameters(source.config);
  step.shape = batch_shape(options, source);
  step.flops = training_flops(source.config, step.shape.num_tokens(), step.shape.length);
  const auto model = create_model(
      source.config, {.batch_size = step.shape.batch_size, .length = step.shape.length},
      options.dtype);
  const PlannedMachine& machine = ground.machine;
  step.budgets = {.device_memory = options.device_memory,
                  .host_memory = options.host_memory.value_or(machine.host_memory_bytes),
                  .total_memory = ground.total_memory_bytes,
                  .num_threads = ground.num_threads,
                  .device = ground.device,
                  .pinned_memory = options.pinned.value_or(SIZE_MAX)};
  const bool device_is_host = ground.total_memory_bytes.has_value();
  if (!device_is_host && !options.device_memory) {
    step.budgets.device_memory = machine.device_memory_bytes;
  }
  step.prepared = prepare(*model, trainer_options(options, step.shape, 0, !source.has_weights),
                          step.budgets, machine.rates);
  return step;
}

}  // namespace ebb

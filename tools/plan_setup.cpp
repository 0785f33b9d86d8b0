#include "tools/plan_setup.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/cli.h"
#include "tools/flag_values.h"
#include "tools/machine.h"
#include "tools/outdated_rates.h"
#include "tools/train_flags.h"
#include "tools/train_setup.h"

namespace ebb {
namespace {

constexpr Choice<Sweep> kSweeps[] = {{"device-memory", Sweep::DeviceMemory},
                                     {"step-tokens", Sweep::StepTokens},
                                     {"ranks", Sweep::Ranks}};

/// The memory size of the returned device is its free memory.
DeviceInfo whole_device(DeviceOptions device) {
  device.memory_bytes = SIZE_MAX;
  return create_device(device)->info();
}

/// Only a request for cuDNN's kernels makes a plan count their workspace.
std::optional<AttentionKernels> attention_here(DeviceKind device) {
  if (device == DeviceKind::Host) return std::nullopt;
  return probe_cuda().attention_library.empty() ? AttentionKernels::Ebb : AttentionKernels::Cudnn;
}

PlanContext context_on(const PlannedMachine& machine, DeviceKind device,
                       std::optional<AttentionKernels> attention = {}) {
  PlanContext context{.machine = machine, .device = {.kind = device, .attention = attention}};
  if (device == DeviceKind::Host) context.total_memory_bytes = context.machine.host_memory_bytes;
  return context;
}

PlanContext context_elsewhere(const TrainOptions& options, const PlannedMachine& machine) {
  // If the cores that update the state also compute, the host is the device.
  const bool on_host = machine.rates.shared_cores;
  if (options.device == (on_host ? DeviceChoice::Cuda : DeviceChoice::Host)) {
    throw ConfigError(fmt::format("--device {}: the device of the machine '{}' is {}",
                                  on_host ? "cuda" : "host", machine.name,
                                  on_host ? "the host" : "a GPU"));
  }
  if (on_host && options.threads > 0 && static_cast<int>(options.threads) != machine.num_threads) {
    throw ConfigError(
        fmt::format("--threads {}: the rates of the machine '{}' were measured with {} threads; "
                    "measure them there again with --write-machine",
                    options.threads, machine.name, machine.num_threads));
  }
  return context_on(machine, on_host ? DeviceKind::Host : DeviceKind::Cuda);
}

/// The number of micro-batches in an evaluation of a run with these flags.
uint32_t evaluation_batches(const TrainOptions& options, const PlanContext& context,
                            const BatchShape& shape) {
  if (context.num_eval_tokens == 0) return 0;
  const uint64_t samples = (context.num_eval_tokens - 1) / static_cast<uint64_t>(shape.length);
  return static_cast<uint32_t>(
      std::min(options.batches_per_evaluation(), num_batches_for(samples, shape.batch_size)));
}

void check_nodes(const TrainOptions& options) {
  const uint64_t num_ranks = std::max<uint64_t>(1, options.ranks), nodes = options.nodes;
  if (num_ranks % nodes == 0) return;
  throw ConfigError(fmt::format(
      "--nodes {}: each machine has the same number of ranks, and {} ranks are not a multiple of "
      "{}; try --ranks {}",
      nodes, num_ranks, nodes, (num_ranks + nodes - 1) / nodes * nodes));
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const PlannedMachine& machine : machine_presets()) names.push_back(machine.name);
  return names;
}

}  // namespace

void add_plan_flags(CommandLine& line, PlanRequest& request) {
  add_planned_flags(line, request.options);
  FlagGroup group{line, "Plan"};
  group.add("--machine", "this|NAME|FILE [this]",
            fmt::format(
                "plan for this machine, with measured rates; for a preset ({}); or for the machine "
                "that a file describes",
                fmt::join(preset_names(), ", ")),
            [&request](std::string_view, std::string_view text) { request.machine_name = text; });
  group.add_flag("--measure",
                 "measure the rates of this machine again, although they are kept from an earlier "
                 "measurement",
                 [&request] { request.measure = true; });
  group.add("--write-machine", "FILE",
            "write the machine's memory and rates to a file, for --machine on another computer",
            [&request](std::string_view, std::string_view text) { request.write_machine = text; });
  group.add(
      "--sweep", "device-memory|step-tokens|ranks",
      "print a table of plans: for device budgets from the smallest that works; for 1, 2, 4, ... "
      "times the micro-batches of a step; or for 1, 2, 4, ... ranks, up to one for each device "
      "of one machine and then of 2, 4, ... --nodes, with --gradient-accumulation micro-batches of "
      "each rank, because a device needs tokens of its "
      "own "
      "to hide its loads, and without --groups with as many groups as ranks",
      [&request](std::string_view flag, std::string_view text) {
        request.sweep = choice_value<Sweep>(flag, text, kSweeps);
      });
  group.add("--html", "FILE",
            "write a page that shows the simulated step: streams, chunks, memory, stalls",
            [&request](std::string_view, std::string_view text) { request.html = text; });
  group.add_flag("--json", "print the result as JSON", [&request] { request.json = true; });
}

void validate(const PlanRequest& request) {
  validate_planned(request.options);
  const bool here = request.machine_name == "this";
  const bool emulates =
      request.options.link.load_bytes_per_s > 0 || request.options.emulate_compute;
  if (!here && emulates) {
    throw ConfigError(
        "--link and --emulate-compute replace rates of this machine and need --machine this; for "
        "another machine, change the rates in its file");
  }
  if (!here && request.measure) {
    throw ConfigError(fmt::format(
        "--measure measures this machine, and the plan is for --machine {}: leave out one of them",
        request.machine_name));
  }
  if (request.sweep != Sweep::None && !request.html.empty()) {
    throw ConfigError("--html shows one step, --sweep plans many: give one of them");
  }
  if (request.sweep == Sweep::Ranks && request.options.ranks > 0) {
    throw ConfigError(
        fmt::format("--sweep ranks chooses the numbers of ranks itself: leave out --ranks {}",
                    request.options.ranks));
  }
  if (request.options.nodes > 1 && request.sweep == Sweep::None) check_nodes(request.options);
  if (request.options.ranks > 1 && !request.html.empty()) {
    throw ConfigError("--html shows the step of one rank: leave it out, or --ranks");
  }
  if (request.sweep == Sweep::DeviceMemory && request.options.device_memory) {
    throw ConfigError(
        fmt::format("--sweep device-memory chooses the device budgets itself: leave out "
                    "--device-memory {}",
                    format_bytes(*request.options.device_memory)));
  }
}

PlannedMachine this_machine(const DeviceOptions& device) {
  const size_t host_bytes = default_host_memory(device.profile.kind);
  const bool on_host = device.profile.kind == DeviceKind::Host;
  const DeviceInfo gpu = on_host ? DeviceInfo{} : whole_device(device);
  return {.name = "this",
          .device = on_host ? read_machine().cpu : gpu.name,
          .device_memory_bytes = on_host ? host_bytes : gpu.memory_bytes,
          .host_memory_bytes = host_bytes,
          .num_threads = device.profile.num_threads,
          .num_devices =
              on_host ? 1 : static_cast<int>(std::max<size_t>(1, probe_cuda().devices.size()))};
}

namespace {

/// --network replaces the rate of the machine, or says it.
PlannedMachine with_network(PlannedMachine machine, const TrainOptions& options) {
  if (options.network_bytes_per_s == 0) return machine;
  machine.rates.network_bytes_per_s = options.network_bytes_per_s;
  if (machine.optimistic) machine.optimistic->network_bytes_per_s = options.network_bytes_per_s;
  return machine;
}

}  // namespace

PlannedMachine planned_machine(const PlanRequest& request) {
  if (request.machine_name != "this") {
    return with_network(find_machine(request.machine_name), request.options);
  }
  const DeviceOptions device = whole_device_options(request.options);
  PlannedMachine machine = this_machine(device);
  const MachineRates rates =
      measured_rates(request.options, device, request.measure ? Kept::Replace : Kept::Use);
  if (const auto notice = busy_notice(rates.other_load, request.options)) say(*notice + "\n");
  machine.rates = rates.machine;
  machine.sources = measured_sources();
  return with_network(std::move(machine), request.options);
}

PlanContext plan_context(const PlanRequest& request, const PlannedMachine& machine) {
  if (request.machine_name != "this") return context_elsewhere(request.options, machine);
  const DeviceOptions device = device_options(request.options);
  PlanContext context =
      context_on(machine, device.profile.kind, attention_here(device.profile.kind));
  context.is_here = true;
  return context;
}

PlanContext context_of(const TrainSetup& setup) {
  const DeviceKind kind = setup.device.profile.kind;
  DeviceOptions whole = setup.device;
  if (setup.ranks != nullptr) {
    whole.profile.num_threads *= static_cast<int>(setup.ranks->ranks_per_machine());
  }
  PlanContext context = context_on(this_machine(whole), kind, attention_here(kind));
  context.machine.rates = setup.rates.machine;
  context.is_here = true;
  context.num_eval_tokens = setup.eval_data ? setup.eval_data->tokens->num_tokens() : 0;
  return context;
}

bool assumes_host_memory(const TrainOptions& options, const PlanContext& context) {
  return !options.host_memory && !context.is_here;
}

PlannedStep plan_step_of(const TrainOptions& options, const PlanContext& context) {
  PlannedStep step;
  const ModelSource source = model_source(options);
  step.model_name = source.name;
  step.num_parameters = num_parameters(source.config);
  step.shape = batch_shape(options, source);
  step.flops = training_flops(source.config, step.shape.num_tokens(), step.shape.length);
  const auto model = create_model(source.config,
                                  {.batch_size = step.shape.batch_size,
                                   .length = step.shape.length,
                                   .packed = options.is_packed()},
                                  options.dtype);
  const PlannedMachine& machine = context.machine;
  const auto share = [&](size_t bytes) { return share_of_rank(bytes, options); };
  const RankPlace place = planned_place(options);
  step.budgets = {
      .device_memory = options.device_memory,
      .host_memory = share(options.host_memory.value_or(machine.host_memory_bytes)),
      .device = context.device,
      .place = place,
      .peer_access = place.ranks_per_machine() > 1 && machine.rates.peer_bytes_per_s > 0};
  if (context.total_memory_bytes) {
    step.budgets.total_memory = share(total_memory(options, *context.total_memory_bytes));
  }
  step.assumes_host_memory = assumes_host_memory(options, context);
  DeviceProfile& device = step.budgets.device;
  device.num_threads =
      std::max(1, machine.num_threads / static_cast<int>(place.ranks_per_machine()));
  if (options.attention) device.attention = options.attention;
  device.pinned_bytes = options.pinned ? share(*options.pinned) : SIZE_MAX;
  const bool device_is_host = context.total_memory_bytes.has_value();
  if (!device_is_host && !options.device_memory) {
    step.budgets.device_memory = machine.device_memory_bytes;
  }
  step.prepared =
      prepare(*model,
              trainer_options(options, step.shape, evaluation_batches(options, context, step.shape),
                              !source.has_weights),
              step.budgets, machine.rates);
  const Candidate& chosen = step.chosen();
  step.predicted = {.seconds = chosen.seconds, .bound = chosen.bound};
  std::vector<Preparation> others;
  if (place.num_ranks > 1) {
    others = prepare_others(step.prepared, *model, step.budgets);
    step.predicted = predict_step(step.prepared, others, machine.rates);
    step.ranks = totals_of_ranks(step.prepared, others);
  }
  step.optimistic_s = machine.optimistic
                          ? predict_step(step.prepared, others, *machine.optimistic).seconds
                          : step.predicted.seconds;
  return step;
}

size_t PlannedStep::bytes_of_all(Tier tier) const {
  if (ranks.empty()) return prepared.ledger.total(tier);
  size_t bytes = 0;
  for (const RankTotals& rank : ranks) bytes += rank.ledger.total(tier);
  return bytes;
}

size_t PlannedStep::bytes_of_machine(Tier tier) const {
  if (ranks.empty()) return prepared.ledger.total(tier);
  std::vector<size_t> bytes(num_machines(), 0);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    bytes[machine_of(rank)] += ranks[rank].ledger.total(tier);
  }
  return std::ranges::max(bytes);
}

// On this machine several ranks may use one device, as in training.
void check_ranks(const TrainOptions& options, const PlanContext& context) {
  const PlannedMachine& machine = context.machine;
  const uint64_t of_one = most_ranks(machine), most = of_one * options.nodes;
  if (options.nodes > 1 && machine.rates.network_bytes_per_s == 0) {
    throw ConfigError(
        fmt::format("--nodes {}: the machine '{}' has no network_bytes_per_s; give --network",
                    options.nodes, machine.name));
  }
  if (context.is_here || options.ranks <= most) return;
  const std::string who = options.nodes > 1
                              ? fmt::format("{} machines '{}' have", options.nodes, machine.name)
                              : fmt::format("the machine '{}' has", machine.name);
  throw ConfigError(fmt::format("--ranks {}: {} {} {}{}, so give --ranks {}{}", options.ranks, who,
                                most, machine.rates.shared_cores ? "thread" : "device",
                                most == 1 ? "" : "s", most,
                                of_one == 1 ? ", or a machine file with more `devices`" : ""));
}

}  // namespace ebb

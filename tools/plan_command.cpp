#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <future>

#include "device/errors.h"
#include "device/planes.h"
#include "io/new_file.h"
#include "tools/advice.h"
#include "tools/cli.h"
#include "tools/commands.h"
#include "tools/html_report.h"
#include "tools/option_flags.h"
#include "tools/output_paths.h"
#include "tools/plan_report.h"
#include "tools/plan_setup.h"
#include "tools/plan_sweep.h"

namespace ebb {
namespace {

Report report_of(const PlanContext& context, const PlannedStep& step) {
  const Preparation& p = step.prepared;
  Report report{
      .title = fmt::format("{} planned for {}", step.model_name, context.machine.device),
      .facts = plan_lines(context, step),
      .tokens_per_step = step.shape.num_tokens(),
      .tiles = {{"on the device", static_cast<double>(p.ledger.total(Tier::Device)), "bytes"},
                {"in host memory", static_cast<double>(p.ledger.total(Tier::Host)), "bytes"}},
      .views = {simulated_view(p, context.machine.rates)}};
  if (context.machine.optimistic) {
    report.tiles.push_back({"a step, at best", step.optimistic_s, "s"});
    report.tiles.push_back({"tokens a second, at best", speed_of(step).optimistic, ""});
  }
  return report;
}

/// One rank has all memory of the machine, and needs neither groups nor rounded sums. Not planned
/// if the machine has too little memory for the state alone, nor for more ranks than a machine has
/// if it would take seconds: one rank does as much as all of them together.
std::optional<double> seconds_of_one_rank(TrainOptions options, const PlanContext& context,
                                          const PlannedStep& step) {
  const size_t state = state_bytes(step.prepared.layout->weight_type(), step.num_parameters);
  const size_t memory = options.host_memory.value_or(context.machine.host_memory_bytes) +
                        step.budgets.device_memory.value_or(0);
  constexpr uint64_t kFewRanks = 8, kMostOperations = 300'000;
  const bool is_long = step.num_ranks() > kFewRanks &&
                       step.num_ranks() * step.prepared.plan.ops.size() > kMostOperations;
  if (state > memory || is_long) return std::nullopt;
  options.ranks = options.nodes = 1;
  options.groups.reset();
  options.group_dtype = DType::F32;
  const auto one = try_step(options, context);
  return one ? std::optional(one->predicted.seconds) : std::nullopt;
}

void print_fit(const PlanRequest& request, const PlanContext& context, PlannedStep step) {
  if (step.num_ranks() > 1) {
    step.one_rank_s = seconds_of_one_rank(request.options, context, step);
  }
  const std::vector<Gain> faster = gains(request.options, context, step);
  fmt::print("{}",
             request.json ? plan_json(context, step, faster) : format_plan(context, step, faster));
  if (!request.html.empty()) {
    write_report(request.html, report_of(context, step), step.prepared);
    say(fmt::format("report: {}\n", request.html));
  }
}

void print_misfit(const PlanRequest& request, const PlanContext& context, const PlanError& error) {
  const MemoryNeed need = need_of(request.options, context, error);
  // The changes are planned beside the memory sizes.
  auto changes = std::async(std::launch::async, changes_that_fit, std::cref(request.options),
                            std::cref(context), std::cref(need));
  const auto memory = memory_that_fits(request.options, context, need);
  const ModelSource source = model_source(request.options);
  Misfit misfit{
      .request = request_lines(context.machine, source.name, num_parameters(source.config),
                               request.options.dtype, batch_shape(request.options, source)),
      .why = with_flags(error.what()),
      .assumed_host_bytes = {},
      .memory = memory,
      .changes = changes.get()};
  if (const uint32_t num_ranks = planned_place(request.options).num_ranks; num_ranks > 1) {
    const uint32_t of_machine = planned_place(request.options).ranks_per_machine();
    misfit.request.push_back(fmt::format(
        "ranks   {}; the memory of one of them follows, and each has 1/{} of the host memory{}",
        num_ranks, of_machine, of_machine < num_ranks ? " of its machine" : ""));
  }
  if (assumes_host_memory(request.options, context)) {
    misfit.assumed_host_bytes = context.machine.host_memory_bytes;
  }
  // A host that is the device shares its memory, so it has no speed with more of one kind.
  if (need.with_unlimited_host && !context.total_memory_bytes) {
    misfit.with_unlimited_host = speed_of(*need.with_unlimited_host);
  }
  fmt::print("{}", request.json ? misfit_json(misfit) : format_misfit(misfit));
  if (request.html.empty()) return;
  say(fmt::format("'{}' is not written, because the plan does not fit\n", request.html));
}

/// Prints the plan and what would make it faster, or why it does not fit and what to do.
int print_plan(const PlanRequest& request, const PlanContext& context) {
  try {
    print_fit(request, context, plan_step_of(request.options, context));
    return 0;
  } catch (const PlanError& error) {
    print_misfit(request, context, error);
    return kExitDoesNotFit;
  }
}

}  // namespace

int plan_command(std::vector<std::string> arguments) {
  CommandLine line(
      "Plans a run for this machine or another, without allocating the memory of the run.",
      "ebb plan");
  PlanRequest request;
  add_plan_flags(line, request);
  if (!parse_arguments(line, std::move(arguments), true)) return 0;
  validate(request);
  refuse_same_files(
      {{"--machine", request.machine_name}, {"--model", request.options.model}, config_path(line)},
      {{"--write-machine", request.write_machine, "{"}, {"--html", request.html, kHtmlBegins}});
  model_source(request.options);  // reports a missing model before the machine is measured
  const PlannedMachine machine = planned_machine(request);
  if (!request.write_machine.empty()) write_new_file(request.write_machine, to_json(machine));
  const PlanContext context = plan_context(request, machine);
  check_ranks(request.options, context);
  if (request.sweep == Sweep::None) return print_plan(request, context);
  sweep_plans(request, context, [](const std::string& row) {
    fmt::print("{}", row);
    flush_results();
  });
  return 0;
}

}  // namespace ebb

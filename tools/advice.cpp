#include "tools/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <utility>

#include "device/errors.h"
#include "tools/size_parse.h"

namespace ebb {
namespace {

/// Plans a change; nullopt where the run does not fit then, or where the flags exclude each other.
using Planner = std::function<std::optional<PlannedChange>(const FlagChange&)>;

/// The first alternative that fits.
std::optional<PlannedChange> first_that_fits(const Alternatives& alternatives,
                                             const Planner& plan) {
  for (const FlagChange& change : alternatives) {
    if (auto planned = plan(change)) return planned;
  }
  return std::nullopt;
}

/// Of each kind the first change that fits. The kinds are planned at the same time, because plans
/// do not share anything.
std::vector<PlannedChange> first_of_each(std::span<const Alternatives> kinds, const Planner& plan) {
  std::vector<std::future<std::optional<PlannedChange>>> planned;
  for (const Alternatives& alternatives : kinds) {
    planned.push_back(std::async(std::launch::async, [&alternatives, &plan] {
      return first_that_fits(alternatives, plan);
    }));
  }
  std::vector<PlannedChange> changes;
  for (auto& change : planned) {
    if (auto found = change.get()) changes.push_back(std::move(*found));
  }
  return changes;
}

Planner planner_of(const PlanContext& context) {
  return [&context](const FlagChange& change) -> std::optional<PlannedChange> {
    const auto step = try_step(change.flags.options, context);
    if (!step) return std::nullopt;
    const double seconds = step->predicted.seconds;
    return PlannedChange{.text = change.text,
                         .price = change.price,
                         .seconds = seconds,
                         .tokens_per_second = seconds > 0 ? step->tokens_per_second() : 0,
                         .device_bytes = step->prepared.ledger.total(Tier::Device),
                         .host_bytes = step->bytes_of_all(Tier::Host)};
  };
}

// ---- Memory budgets of a training that does not fit

/// The same machine with more host memory than any plan needs.
PlanContext with_unlimited_host(PlanContext context) {
  context.total_memory_bytes.reset();
  context.is_here = false;
  return context;
}

std::optional<PlannedStep> step_with_unlimited_host(TrainOptions options,
                                                    const PlanContext& context) {
  options.host_memory = kUnlimitedBytes;
  return try_step(options, with_unlimited_host(context));
}

/// The smallest device memory that works when host memory is unlimited.
std::optional<size_t> least_device_bytes(TrainOptions options, const PlanContext& context) {
  options.host_memory = options.device_memory = kUnlimitedBytes;
  const auto step = try_step(options, with_unlimited_host(context));
  if (!step) return std::nullopt;
  return step->prepared.smallest_device_bytes;
}

/// More memory, as little more as works. Where the device's memory is host memory: more host
/// memory, or else less device memory.
Alternatives other_budgets(const TrainOptions& requested, const PlanContext& context,
                           const MemoryNeed& need) {
  const auto least = need.least_device_bytes;
  if (!least) return {};
  const std::string device_text = fmt::format("--device-memory {}", flag_size(*least));
  TrainOptions options = requested;
  const auto host_text = [](size_t bytes) { return "--host-memory " + flag_size(bytes); };
  if (context.total_memory_bytes && !requested.device_memory) {
    Alternatives all;
    // A user may request more memory than the machine has, but no change suggests it.
    if (need.least_host_bytes.value_or(SIZE_MAX) <= *context.total_memory_bytes) {
      options.host_memory = need.least_host_bytes;
      all.push_back({host_text(*need.least_host_bytes), "", {.options = options}});
    }
    options = requested;
    options.device_memory = *least;
    all.push_back({device_text, "", {.options = options}});
    return all;
  }
  const bool device_fits =
      *least <= requested.device_memory.value_or(context.machine.device_memory_bytes);
  if (!device_fits) options.device_memory = *least;
  if (!device_fits && context.is_here && *least > context.machine.device_memory_bytes) return {};
  const auto host = device_fits && need.least_host_bytes
                        ? need.least_host_bytes
                        : least_host_bytes(options, with_unlimited_host(context));
  if (!host) return {};
  const bool host_fits = *host <= requested.host_memory.value_or(context.machine.host_memory_bytes);
  if (!host_fits) options.host_memory = *host;
  std::vector<std::string> texts;
  if (!device_fits) texts.push_back(device_text);
  if (!host_fits) texts.push_back(host_text(*host));
  if (texts.empty()) return {};  // each fits alone, but not both together
  // A budget of host memory for another machine is the RAM that its user has.
  const bool is_dearer =
      !context.is_here && (!host_fits || *least > context.machine.device_memory_bytes);
  const char* const price = is_dearer ? "a machine with more memory" : "";
  return {{fmt::format("{}", fmt::join(texts, " ")), price, {.options = options}}};
}

// ---- Memory budgets of an inference that does not fit

/// Device memory, host memory, or both: as much as a plan without limits takes.
Alternatives other_budgets(const RunFlags& requested, const DeviceOptions& device,
                           const PlanInference& plan) {
  RunFlags unlimited = requested;
  unlimited.options.device_memory.reset();
  unlimited.options.host_memory.reset();
  const std::optional<size_t> free_bytes = budgets_of(unlimited.options, device).device_memory;
  const PreparedInference p = plan(unlimited, {.device = device.profile});
  if (free_bytes && *free_bytes < p.smallest_device_bytes) return {};
  const size_t host_bytes = p.ledger.total(Tier::Host);
  const std::string device_text = "--device-memory " + flag_size(p.smallest_device_bytes);
  const std::string host_text = "--host-memory " + flag_size(host_bytes);
  RunFlags more_device = requested, more_host = requested;
  more_device.options.device_memory = p.smallest_device_bytes;
  more_host.options.host_memory = host_bytes;
  RunFlags more_of_both = more_device;
  more_of_both.options.host_memory = host_bytes;
  return {{device_text, "", more_device},
          {host_text, "", more_host},
          {device_text + " " + host_text, "", more_of_both}};
}

// ---- Memory budgets that make a training faster

/// Half as much device memory again, and all that helps: the smaller may be enough.
std::vector<Alternatives> more_device_memory(const TrainOptions& requested,
                                             const PlanContext& context, size_t most_bytes) {
  const size_t device_bytes = context.machine.device_memory_bytes;
  // Without a budget, a host that is the device already takes what the model needs.
  if (!requested.device_memory && context.total_memory_bytes) return {};
  const size_t budget = requested.device_memory.value_or(device_bytes);
  std::vector<Alternatives> all;
  if (budget >= most_bytes) return all;
  for (const size_t bytes : {budget + budget / 2, most_bytes}) {
    if (bytes > most_bytes) continue;
    TrainOptions options = requested;
    options.device_memory = bytes;
    all.push_back({{fmt::format("--device-memory {}", flag_size(bytes)),
                    bytes > device_bytes ? "a device with more memory" : "",
                    {.options = options}}});
  }
  return all;
}

/// The gain of the first change of each kind that fits.
std::vector<Gain> gains_of(std::span<const Alternatives> kinds, const PlanContext& context,
                           const PlannedStep& now) {
  std::vector<Gain> gains;
  for (PlannedChange& change : first_of_each(kinds, planner_of(context))) {
    const double ratio = change.tokens_per_second / now.tokens_per_second();
    gains.push_back({std::move(change), ratio});
  }
  return gains;
}

/// An upper bound of what a change of memory or of the order of work can gain: then only the
/// arithmetic without recomputation takes time.
double most_gain(const PlannedStep& step) {
  const Candidate& chosen = step.chosen();
  double least_flops = chosen.flops;
  for (const Candidate& c : step.prepared.candidates) {
    if (c.flops > 0) least_flops = std::min(least_flops, c.flops);
  }
  return step.predicted.seconds / (chosen.bound.compute_s * (least_flops / chosen.flops));
}

}  // namespace

std::optional<PlannedStep> try_step(const TrainOptions& options, const PlanContext& context) {
  try {
    return plan_step_of(options, context);
  } catch (const ConfigError&) {  // also a PlanError
    return std::nullopt;
  }
}

// A plan with a budget of one byte names the smallest budget when it fails.
std::optional<size_t> least_host_bytes(TrainOptions options, const PlanContext& context) {
  options.host_memory = 1;
  try {
    plan_step_of(options, context);
  } catch (const HomeTooSmall& refused) {
    return refused.least_bytes() * planned_place(options).ranks_per_machine();
  } catch (const ConfigError&) {
  }
  return std::nullopt;
}

// ---- Trainings that do not fit

MemoryNeed need_of(const TrainOptions& options, const PlanContext& context,
                   const PlanError& error) {
  MemoryNeed need;
  if (const auto* const too_small = dynamic_cast<const HomeTooSmall*>(&error)) {
    need.least_host_bytes = too_small->least_bytes() * planned_place(options).ranks_per_machine();
  }
  need.with_unlimited_host = step_with_unlimited_host(options, context);
  need.least_device_bytes = need.with_unlimited_host
                                ? need.with_unlimited_host->prepared.smallest_device_bytes
                                : least_device_bytes(options, context);
  return need;
}

std::vector<PlannedChange> changes_that_fit(const TrainOptions& options, const PlanContext& context,
                                            const MemoryNeed& need) {
  RunFlags flags{.options = options};
  if (!flags.options.attention) flags.options.attention = context.device.attention;
  const auto& roomy = need.with_unlimited_host;
  const Goal goal = roomy ? Goal::FitHost : Goal::FitDevice;
  std::vector<Alternatives> kinds =
      flag_changes(flags, goal, context.device.kind != DeviceKind::Host);
  kinds.push_back(other_budgets(options, context, need));
  std::vector<PlannedChange> changes = first_of_each(kinds, planner_of(context));
  for (PlannedChange& c : changes) {
    if (!roomy || c.tokens_per_second == 0) continue;
    c.relative_time = roomy->tokens_per_second() / c.tokens_per_second;
  }
  std::ranges::stable_sort(changes, std::ranges::greater{}, &PlannedChange::tokens_per_second);
  return changes;
}

std::string format_changes(std::span<const PlannedChange> changes, size_t most) {
  if (changes.empty()) return "no single change of flags makes it fit\n";
  std::string text = "the cheapest changes after which it fits:\n";
  const bool has_times = changes.front().relative_time > 0;
  const auto time_text = [&](const std::string& time) {
    return has_times ? fmt::format(" {:>7}", time) : "";
  };
  text += fmt::format("  {:>10} {:>11}{} {:>12} {:>12}  {}\n", "step s", "tokens/s",
                      time_text("time"), "device", "host", "change");
  for (const PlannedChange& c : changes.first(std::min(changes.size(), most))) {
    const std::string time = c.relative_time > 0 ? fmt::format("{:.2f} x", c.relative_time) : "";
    const std::string price = c.price.empty() ? "" : fmt::format(" ({})", c.price);
    text += fmt::format("  {:>10.4g} {:>11.5g}{} {:>12} {:>12}  {}{}\n", c.seconds,
                        c.tokens_per_second, time_text(time), format_bytes(c.device_bytes),
                        format_bytes(c.host_bytes), c.text, price);
  }
  if (has_times) {
    text +=
        "  \"time\" compares the time for a token with this run on a machine with unlimited RAM\n";
  }
  return text;
}

void plan_or_advise(const TrainOptions& options, TrainSetup& setup) {
  try {
    plan_run(options, setup);
  } catch (const PlanError& error) {
    const PlanContext context = context_of(setup);
    const auto changes = changes_that_fit(options, context, need_of(options, context, error));
    std::string text = fmt::format("{}\n{}", error.what(), format_changes(changes));
    text.pop_back();  // a message ends without a newline
    throw PlanError(text);
  }
}

// ---- Inferences that do not fit

std::vector<PlannedChange> inference_changes_that_fit(const RunFlags& requested,
                                                      const DeviceOptions& device,
                                                      const PlanInference& plan) {
  std::vector<Alternatives> kinds =
      flag_changes(requested, Goal::FitInference, device.profile.kind != DeviceKind::Host);
  kinds.push_back(other_budgets(requested, device, plan));
  const Planner planner = [&](const FlagChange& change) -> std::optional<PlannedChange> {
    try {
      plan(change.flags, budgets_of(change.flags.options, device));
      return PlannedChange{.text = change.text, .price = change.price};
    } catch (const ConfigError&) {  // also a PlanError
      return std::nullopt;
    }
  };
  // One after the other: `plan` may not be called by several threads.
  std::vector<PlannedChange> changes;
  for (const Alternatives& alternatives : kinds) {
    if (auto change = first_that_fits(alternatives, planner)) changes.push_back(std::move(*change));
  }
  return changes;
}

// ---- Trainings that could be faster

std::optional<Gain> best_gain(const TrainOptions& options, const PlanContext& context) {
  constexpr double kAsGood = 1.01;
  const auto now = try_step(options, context);
  if (!now || now->predicted.seconds == 0) return std::nullopt;
  std::vector<Alternatives> kinds =
      flag_changes({.options = options}, Goal::Faster, context.device.kind != DeviceKind::Host);
  const auto more = more_device_memory(options, context, now->prepared.full_device_bytes);
  // Of changes that are equally good the first wins. Other flags without a price come before more
  // device memory, and flags with a price after it.
  const auto priced = std::ranges::find_if(
      kinds, [](const Alternatives& a) { return !a.empty() && !a.front().price.empty(); });
  kinds.insert(priced, more.begin(), more.end());
  Gain best;
  for (Gain& gain : gains_of(kinds, context, *now)) {
    if (gain.ratio > best.ratio * kAsGood) best = std::move(gain);
  }
  if (best.ratio < kLeastGain) return std::nullopt;
  return best;
}

bool searches_gains(const PlannedStep& planned) {
  constexpr size_t kMostOperations = 300'000;
  return planned.prepared.plan.ops.size() <= kMostOperations;
}

std::vector<Gain> gains(const TrainOptions& options, const PlanContext& context,
                        const PlannedStep& planned) {
  if (planned.predicted.seconds == 0 || most_gain(planned) < kLeastGain) return {};
  if (!searches_gains(planned)) return {};
  std::vector<Alternatives> kinds =
      flag_changes({.options = options}, Goal::FasterPlan, context.device.kind != DeviceKind::Host);
  auto more = more_device_memory(options, context, planned.prepared.full_device_bytes);
  if (!more.empty()) kinds.push_back(std::move(more.front()));
  std::vector<Gain> found = gains_of(kinds, context, planned);
  std::erase_if(found, [](const Gain& gain) { return gain.ratio < kLeastGain; });
  std::ranges::stable_sort(found, std::ranges::greater{}, &Gain::ratio);
  return found;
}

std::string format_gain(const std::optional<Gain>& gain) {
  if (!gain) {
    return fmt::format("no single change of a flag is predicted to give {:.0f} % more tokens/s",
                       100 * (kLeastGain - 1));
  }
  const PlannedChange& change = gain->change;
  const std::string price = change.price.empty() ? "" : " (" + change.price + ")";
  return fmt::format("{}{}: {:.2f} x the tokens/s, as predicted", change.text, price, gain->ratio);
}

}  // namespace ebb

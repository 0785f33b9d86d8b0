#include "tools/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "device/errors.h"
#include "device/planes.h"
#include "io/json_text.h"
#include "scheduler/plan/kept_mappings.h"
#include "scheduler/plan/traffic.h"
#include "scheduler/search/choose.h"
#include "tools/candidate_table.h"
#include "tools/machine_line.h"
#include "tools/size_parse.h"
#include "tools/traffic_report.h"

namespace ebb {
namespace {

using Json = nlohmann::ordered_json;

/// The last line of a text about memory.
constexpr std::string_view kUnits =
    "units   1 MiB = 1024 KiB, 1 GiB = 1024 MiB; a machine with N GB of RAM leaves about N * 10^9 "
    "bytes to a run\n";

/// "957.1 tokens/s (at best 1400)"
std::string speed_text(const Speed& speed) {
  const std::string best = speed.optimistic == speed.pessimistic
                               ? ""
                               : fmt::format(" (at best {:.5g})", speed.optimistic);
  return fmt::format("{:.5g} tokens/s{}", speed.pessimistic, best);
}

/// The pessimistic times, which the plan is chosen for, with the optimistic ones in brackets.
std::string seconds_text(const PlannedStep& step, const PlannedMachine& machine) {
  const auto& [seconds, bound, num_simulated] = step.predicted;
  const Speed speed = speed_of(step);
  const std::string best =
      machine.optimistic
          ? fmt::format(" (at best {:.4g} s)",
                        static_cast<double>(step.shape.num_tokens()) / speed.optimistic)
          : "";
  return fmt::format(
      "{:.4g} s predicted{}, bound {:.4g} s by {} (share {:.1f} %); {}, {:.4g} TFLOP/s", seconds,
      best, bound.seconds, bound.bound_by, 100 * bound.seconds / seconds, speed_text(speed),
      step.flops / seconds / 1e12);
}

/// In GB, as machines are described: " (119.21 GiB are 128.0 GB)".
std::string host_gigabytes_text(const PlannedStep& step) {
  if (!step.budgets.host_memory) return "";
  const size_t all_bytes =
      *step.budgets.host_memory * (step.num_ranks() / step.num_machines());  // of a machine
  return fmt::format(" ({} are {}{})", format_bytes(all_bytes), format_gigabytes(all_bytes),
                     step.assumes_host_memory ? ", which is assumed: give --host-memory" : "");
}

std::string fits_text(const PlannedStep& step) {
  const auto of = [](size_t used, std::optional<size_t> budget) {
    return budget ? fmt::format("{} of {}", format_bytes(used), format_bytes(*budget))
                  : format_bytes(used);
  };
  const Ledger& ledger = step.prepared.ledger;
  if (step.num_ranks() > 1) {
    const uint32_t num_ranks = step.num_ranks();
    const size_t of_machine = *step.budgets.host_memory * (num_ranks / step.num_machines());
    return fmt::format("yes: rank 0 takes {} on its device and {} in host memory; {} {}{}",
                       of(ledger.total(Tier::Device), step.budgets.device_memory),
                       of(ledger.total(Tier::Host), step.budgets.host_memory),
                       step.num_machines() > 1 ? "the ranks of a machine" : "all ranks",
                       of(step.bytes_of_machine(Tier::Host), of_machine),
                       host_gigabytes_text(step));
  }
  return fmt::format("yes: {} on the device, {} in host memory{}",
                     of(ledger.total(Tier::Device), step.budgets.device_memory),
                     of(ledger.total(Tier::Host), step.budgets.host_memory),
                     host_gigabytes_text(step));
}

/// What a step of this rank loads and fetches.
std::string loads_text(const Plan& plan) {
  std::string text = format_bytes(plan.loaded_bytes);
  if (plan.division.splits_loads) {
    text += fmt::format(" ({} of it are weights, of which each rank loads {} from host memory)",
                        format_bytes(plan.gathered_bytes), format_bytes(plan.part_bytes));
  } else if (plan.gathered_bytes > 0) {
    text += fmt::format(" ({} of it from the devices of the owners)",
                        format_bytes(plan.gathered_bytes));
  }
  if (plan.fetched_bytes > 0) {
    const bool copies = std::ranges::any_of(plan.chunks, &ChunkRecord::is_copied);
    text += fmt::format(", fetches {} from other machines{},", format_bytes(plan.fetched_bytes),
                        copies ? " for all ranks of its machine" : "");
  }
  return text;
}

/// True if the host memory is about too small for the chunks that stay on the device. A smaller
/// device budget also stores more of a step in host memory.
bool home_is_short(const PlannedStep& step) {
  const Layout& layout = *step.prepared.layout;
  size_t needed = step.prepared.ledger.total(Tier::Host);
  const bool keeps_gradients = updates_after_norm(step.prepared.options);
  const size_t gradient_bytes = keeps_gradients ? size_of(layout.gradient_type()) : 0;
  for (const ChunkIndex c : step.prepared.plan.chunks_that(&ChunkRecord::has_device_state)) {
    const uint64_t elements = layout.chunk_elements(c);
    needed += state_bytes(layout.weight_type(), elements) + elements * gradient_bytes;
  }
  return needed > step.budgets.host_memory.value_or(SIZE_MAX);
}

Json to_json(const Candidate& c, const Preparation& p) {
  const Schedule& s = c.schedule;
  Json json = {{"micro_batch_order", name_of(s.micro_batch_order)},
               {"recompute", name_of(s.recompute, p.num_layers)},
               {"activations", name_of(s.activations)},
               {"update", name_of_updates(p.options, s)}};
  if (!c.why_not.empty()) {
    json["why_not"] = c.why_not;
    return json;
  }
  json["resident_chunks"] = s.resident_chunks;
  json["device_updates"] = s.device_updates;
  json["kept_sums"] = s.kept_sums;
  json["sums_on_devices"] = s.sums_on_devices;
  json["chains_sums"] = s.chains_sums;
  json["splits_loads"] = s.splits_loads;
  json["copies_weights"] = s.copies_weights;
  json["speculated_chunks"] = s.speculated_chunks;
  json["predicted_seconds"] = c.seconds;
  json["bound_seconds"] = c.bound.seconds;
  json["bound_by"] = c.bound.bound_by;
  json["moved_bytes"] = c.moved_bytes;
  json["device_bytes"] = c.device_bytes;
  json["host_bytes"] = c.host_bytes;
  return json;
}

Json to_json(const PlannedChange& c) {
  Json json = {{"change", c.text},
               {"predicted_seconds", c.seconds},
               {"tokens_per_second", c.tokens_per_second},
               {"device_bytes", c.device_bytes},
               {"host_bytes", c.host_bytes}};
  if (!c.price.empty()) json["price"] = c.price;
  if (c.relative_time > 0) json["relative_time"] = c.relative_time;
  return json;
}

Json to_json(const Ledger& ledger) {
  Json classes = Json::array();
  for (const LedgerEntry& e : ledger.entries()) {
    classes.push_back({{"class", e.name}, {"tier", name_of(e.tier)}, {"bytes", e.bytes}});
  }
  return classes;
}

Json to_json(const Traffic& traffic) {
  Json rows = Json::array();
  for (const TrafficRow& row : traffic.rows()) {
    rows.push_back({{"class", name_of(row.traffic_class)},
                    {"reason", name_of(row.reason)},
                    {"loaded_bytes", row.moved.loaded_bytes},
                    {"stored_bytes", row.moved.stored_bytes}});
  }
  return rows;
}

/// "4, each with 4 of 16 micro-batches; 4 groups; 3.62 x the speed of one rank with its best plan"
std::string ranks_text(const PlannedStep& step) {
  const Division& division = step.prepared.division;
  uint32_t fewest = UINT32_MAX, most = 0;
  for (const RankTotals& rank : step.ranks) {
    fewest = std::min(fewest, rank.num_micro_batches);
    most = std::max(most, rank.num_micro_batches);
  }
  const std::string count =
      fewest == most ? std::to_string(most) : fmt::format("{} to {}", fewest, most);
  return fmt::format(
      "{}{}, each with {} of {} micro-batches; {} groups{}{}", step.num_ranks(),
      step.num_machines() > 1 ? fmt::format(" on {} machines", step.num_machines()) : "", count,
      division.num_micro_batches, division.num_groups,
      division.sum_type == DType::F32 ? "" : ", whose sums are rounded to bf16",
      step.one_rank_s ? fmt::format("; {:.2f} x the speed of one rank with its best plan, which "
                                    "takes {:.4g} s for these micro-batches",
                                    *step.one_rank_s / step.predicted.seconds, *step.one_rank_s)
                      : "");
}

/// The memory of each class: of a rank, of the ranks of a machine if there are several, and of all
/// ranks together.
std::string memory_of_ranks(const PlannedStep& step) {
  const bool has_machines = step.num_machines() > 1;
  const auto line = [&](std::string_view name, const std::string& device, const std::string& host,
                        const std::string& machine, const std::string& all) {
    return fmt::format("  {:<20} {:>12} {:>26} {:>14}{}\n", name, device, host,
                       has_machines ? machine : all,
                       has_machines ? fmt::format(" {:>14}", all) : "");
  };
  const auto row = [&](std::string_view name, const auto& bytes_of) {
    size_t device = 0, least = SIZE_MAX, most = 0, all = 0;
    std::vector<size_t> of_machine(step.num_machines(), 0);
    for (size_t rank = 0; rank < step.ranks.size(); ++rank) {
      const Ledger& ledger = step.ranks[rank].ledger;
      const size_t host = bytes_of(ledger, Tier::Host);
      device = std::max(device, bytes_of(ledger, Tier::Device));
      least = std::min(least, host);
      most = std::max(most, host);
      of_machine[step.machine_of(rank)] += host;
      all += host;
    }
    const auto cell = [](size_t bytes) { return bytes > 0 ? format_bytes(bytes) : "-"; };
    const std::string range =
        cell(least) == cell(most) ? cell(most) : cell(least) + " to " + cell(most);
    return line(name, cell(device), range, cell(std::ranges::max(of_machine)), cell(all));
  };
  std::string text =
      line("memory", "each device", "host, of a rank", "of a machine", "of all ranks");
  std::vector<std::string_view> names;
  for (const RankTotals& rank : step.ranks) {
    for (const LedgerEntry& e : rank.ledger.entries()) {
      if (std::ranges::find(names, e.name) != names.end()) continue;
      names.push_back(e.name);
      text +=
          row(e.name, [&](const Ledger& ledger, Tier tier) { return ledger.bytes(e.name, tier); });
    }
  }
  return text + row("total", [](const Ledger& ledger, Tier tier) { return ledger.total(tier); });
}

Json ranks_json(const PlannedStep& step) {
  Json json = {{"ranks", step.num_ranks()},
               {"nodes", step.num_machines()},
               {"simulated", step.predicted.num_simulated},
               {"groups", step.prepared.division.num_groups},
               {"group_dtype", name_of(step.prepared.division.sum_type)},
               {"device_bytes", step.bytes_of_all(Tier::Device)},
               {"host_bytes", step.bytes_of_all(Tier::Host)},
               {"machine_host_bytes", step.bytes_of_machine(Tier::Host)}};
  if (step.one_rank_s) {
    json["one_rank_seconds"] = *step.one_rank_s;
    json["speed_up"] = *step.one_rank_s / step.predicted.seconds;
  }
  for (const RankTotals& rank : step.ranks) {
    json["of_each"].push_back({{"micro_batches", rank.num_micro_batches},
                               {"loaded_bytes", rank.loaded_bytes},
                               {"stored_bytes", rank.stored_bytes},
                               {"fetched_bytes", rank.fetched_bytes},
                               {"device_bytes", rank.ledger.total(Tier::Device)},
                               {"host_bytes", rank.ledger.total(Tier::Host)},
                               {"memory", to_json(rank.ledger)}});
  }
  return json;
}

}  // namespace

Speed speed_of(const PlannedStep& step) {
  const auto tokens = static_cast<double>(step.shape.num_tokens());
  return {.pessimistic = step.tokens_per_second(), .optimistic = tokens / step.optimistic_s};
}

std::string layers_text(const Preparation& p) {
  std::vector<std::pair<LayerSummary, int>> alike;  // with the number of layers
  size_t kept_bytes = 0;
  double recompute_s = 0;
  for (const LayerSummary& layer : p.layers) {
    kept_bytes += layer.kept_bytes;
    recompute_s += layer.recompute_s;
    const auto found = std::ranges::find_if(alike, [&](const auto& a) {
      return a.first.recomputed == layer.recomputed && a.first.kept_bytes == layer.kept_bytes;
    });
    if (found == alike.end()) {
      alike.emplace_back(layer, 1);
    } else {
      ++found->second;
    }
  }
  std::string text = fmt::format("keep {} in a micro-batch: ", format_bytes(kept_bytes));
  for (const auto& [layer, count] : alike) {
    text += fmt::format("{}{} x {} (recompute {})", &layer == &alike[0].first ? "" : ", ", count,
                        format_bytes(layer.kept_bytes), name_of_groups(layer.recomputed));
  }
  const double compute_s = p.candidates[p.chosen].bound.compute_s;
  if (compute_s <= 0) return text;
  return text + fmt::format("; {:.1f} % of the compute time recomputes",
                            100 * recompute_s * p.share.micro_batches.count / compute_s);
}

std::vector<std::string> request_lines(const PlannedMachine& machine, const std::string& model,
                                       uint64_t num_parameters, DType type,
                                       const BatchShape& shape) {
  return {fmt::format("model   {}: {} parameters, {}", model, format_count(num_parameters),
                      name_of(type)),
          fmt::format("machine {} ({}): {}", machine.name, machine.device,
                      machine_line(machine.rates, machine.optimistic)),
          fmt::format("step    {} micro-batches x {} sequences x {} tokens = {} tokens",
                      shape.num_batches, shape.batch_size, shape.length, shape.num_tokens())};
}

std::vector<std::string> plan_lines(const PlanContext& context, const PlannedStep& step) {
  const Preparation& p = step.prepared;
  std::vector<std::string> lines = request_lines(
      context.machine, step.model_name, step.num_parameters, p.layout->weight_type(), step.shape);
  const auto line = [&lines](std::string_view name, const std::string& value) {
    lines.push_back(fmt::format("{:<8}{}", name, value));
  };
  if (step.num_ranks() > 1) line("ranks", ranks_text(step));
  if (const uint32_t some = step.predicted.num_simulated; some < step.num_ranks()) {
    line("", fmt::format("{} simulated, and the others are taken to do the same at the same time",
                         some == 1 ? "one rank is" : fmt::format("{} ranks are", some)));
  }
  line("fits", fits_text(step));
  line("device",
       fmt::format("the smallest budget that works{} is {}; beyond {} more memory is used only for "
                   "chunks that are updated on the device",
                   home_is_short(step) ? ", with more host memory," : "",
                   format_bytes(p.smallest_device_bytes), format_bytes(p.full_device_bytes)));
  line("time", seconds_text(step, context.machine));
  if (context.machine.optimistic) {
    line("",
         "\"at best\" is the time of this plan with the optimistic value of each rate; the plan "
         "is chosen for the pessimistic values");
  }
  line("traffic",
       fmt::format("a step loads {} and stores {}, in {} chunks of {} and {} blocks{}",
                   loads_text(p.plan), format_bytes(p.plan.stored_bytes), p.layout->num_chunks(),
                   format_bytes(p.layout->chunk_bytes()), p.num_blocks,
                   p.device.kind == DeviceKind::Cuda
                       ? fmt::format(", and maps {} blocks", num_mappings(p.plan))
                       : ""));
  for (const std::string& reasons : traffic_reasons(traffic_of(p.plan, *p.layout))) {
    line("", reasons);
  }
  if (!p.layers.empty()) line("layers", layers_text(p));
  line("plan", fmt::format("{} (*): {}", p.candidates.size() == 1 ? "as requested" : "chosen",
                           why_chosen(p)));
  return lines;
}

std::string format_plan(const PlanContext& context, const PlannedStep& step,
                        std::span<const Gain> gains) {
  const Preparation& p = step.prepared;
  std::string text = fmt::format("{}\n", fmt::join(plan_lines(context, step), "\n"));
  std::string_view title = "faster";
  // Without rates nothing is known about speed.
  if (gains.empty() && step.predicted.seconds > 0) {
    text += fmt::format("{:<8}{}\n", title,
                        searches_gains(step)
                            ? format_gain(std::nullopt)
                            : "not searched, because each change of a flag takes seconds to plan");
  }
  for (const Gain& gain : gains) {
    text += fmt::format("{:<8}{}\n", title, format_gain(gain));
    title = "";
    if (gain.change.text.starts_with("--gradient-accumulation")) {
      text += fmt::format("{:<8}(--sweep step-tokens shows steps with still more tokens)\n", "");
    }
  }
  text += candidate_table(p);
  if (step.num_ranks() > 1) {
    text += "  (times of one rank that never waits for another)\n" + memory_of_ranks(step);
  } else {
    text += p.ledger.table();
  }
  return text + std::string(kUnits);
}

std::string plan_json(const PlanContext& context, const PlannedStep& step,
                      std::span<const Gain> gains) {
  const Preparation& p = step.prepared;
  const auto& [seconds, bound, num_simulated] = step.predicted;
  Json json = {{"fits", true},
               {"model", step.model_name},
               {"parameters", step.num_parameters},
               {"machine", context.machine.name},
               {"tokens_per_step", step.shape.num_tokens()},
               {"predicted_seconds", seconds},
               {"optimistic_seconds", step.optimistic_s},
               {"bound_seconds", bound.seconds},
               {"bound_by", bound.bound_by},
               {"bound_share", bound.seconds / seconds},
               {"stream_seconds",
                {{"compute", bound.compute_s},
                 {"load", bound.load_s},
                 {"store", bound.store_s},
                 {"update", bound.update_s},
                 {"host memory", bound.host_memory_s},
                 {"network", bound.network_s}}},
               {"tokens_per_second", step.tokens_per_second()},
               {"optimistic_tokens_per_second", speed_of(step).optimistic},
               {"tflops", step.flops / seconds / 1e12},
               {"loaded_bytes", p.plan.loaded_bytes},
               {"gathered_bytes", p.plan.gathered_bytes},
               {"part_bytes", p.plan.part_bytes},
               {"stored_bytes", p.plan.stored_bytes},
               {"device_bytes", p.ledger.total(Tier::Device)},
               {"host_bytes", p.ledger.total(Tier::Host)},
               {"smallest_device_bytes", p.smallest_device_bytes},
               {"full_device_bytes", p.full_device_bytes},
               {"chosen", p.chosen}};
  for (const LayerSummary& layer : p.layers) {
    json["layers"].push_back({{"recompute", name_of_groups(layer.recomputed)},
                              {"kept_bytes", layer.kept_bytes},
                              {"recompute_seconds", layer.recompute_s}});
  }
  if (p.device.kind == DeviceKind::Cuda) json["mappings"] = num_mappings(p.plan);
  json["faster"] = Json::array();
  for (const Gain& gain : gains) {
    Json change = to_json(gain.change);
    change["gain"] = gain.ratio;
    json["faster"].push_back(change);
  }
  json["candidates"] = Json::array();
  for (const Candidate& candidate : p.candidates) {
    json["candidates"].push_back(to_json(candidate, p));
  }
  json["memory"] = to_json(p.ledger);
  json["traffic"] = to_json(traffic_of(p.plan, *p.layout));
  if (step.num_ranks() > 1) json["ranks"] = ranks_json(step);
  return json_text(json, 2) + "\n";
}

std::string format_misfit(const Misfit& misfit) {
  constexpr std::string_view kSaidBefore = "the plan does not fit: ";
  std::string_view why = misfit.why;
  if (why.starts_with(kSaidBefore)) why.remove_prefix(kSaidBefore.size());
  std::string text = fmt::format("{}\nfits    no: {}\n", fmt::join(misfit.request, "\n"), why);
  if (misfit.assumed_host_bytes) {
    text += fmt::format("assumed {} of RAM: give --host-memory\n",
                        format_gigabytes(*misfit.assumed_host_bytes));
  }
  if (misfit.with_unlimited_host) {
    text += fmt::format("speed   with unlimited RAM, this GPU is predicted to reach {}\n",
                        speed_text(*misfit.with_unlimited_host));
  }
  std::string_view title = "memory";
  for (const MemoryAnswer& answer : misfit.memory) {
    text += fmt::format("{:<8}{}\n", title, memory_text(answer));
    title = "or";
  }
  return text + format_changes(misfit.changes, misfit.changes.size()) + std::string(kUnits);
}

std::string misfit_json(const Misfit& misfit) {
  Json json = {{"fits", false}, {"why", misfit.why}};
  if (misfit.with_unlimited_host) {
    json["tokens_per_second_with_enough_ram"] = misfit.with_unlimited_host->pessimistic;
    json["optimistic_tokens_per_second_with_enough_ram"] = misfit.with_unlimited_host->optimistic;
  }
  json["memory_that_fits"] = Json::array();
  for (const MemoryAnswer& answer : misfit.memory) {
    Json entry = Json::object();
    if (answer.gpu) entry["gpu_gigabytes"] = answer.gpu->gigabytes;
    if (answer.ram) entry["ram_gigabytes"] = answer.ram->gigabytes;
    if (answer.ram) entry["host_bytes"] = answer.host_bytes;
    json["memory_that_fits"].push_back(entry);
  }
  json["changes"] = Json::array();
  for (const PlannedChange& change : misfit.changes) json["changes"].push_back(to_json(change));
  return json_text(json, 2) + "\n";
}

}  // namespace ebb

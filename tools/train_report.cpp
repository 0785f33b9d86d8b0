#include "tools/train_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "device/errors.h"
#include "device/planes.h"
#include "scheduler/search/choose.h"
#include "scheduler/search/memory_sizes.h"
#include "tools/candidate_table.h"
#include "tools/machine_line.h"
#include "tools/plan_report.h"
#include "tools/progress.h"
#include "tools/size_parse.h"
#include "tools/traffic_report.h"

namespace ebb {
namespace {

/// The reason why --device auto chose the host; empty if it did not choose the host.
std::string why_host(const TrainOptions& options, const TrainSetup& setup) {
  const bool chosen = options.device == DeviceChoice::Auto && !setup.device.emulate_compute;
  return chosen && setup.device.profile.kind == DeviceKind::Host ? "; no GPU: " + why_no_cuda()
                                                                 : "";
}

std::string device_line(const TrainSetup& setup) {
  const Preparation& p = setup.prepared;
  const DeviceOptions& d = setup.device;
  std::string kind = "cuda" + attention_text(d);
  if (d.profile.kind == DeviceKind::Host) {
    kind = fmt::format("host, {} threads", d.profile.num_threads);
    if (p.layout->weight_type() == DType::BF16) {
      kind += fmt::format(", {} arithmetic", name_of(*d.arithmetic));
    }
  }
  if (d.emulate_compute) {
    kind += fmt::format(", emulates {:.4g} TFLOP/s", d.emulate_compute->flops_per_s / 1e12);
    if (d.emulate_compute->bytes_per_s > 0) {
      kind += fmt::format(" and {:.4g} GB/s of memory", d.emulate_compute->bytes_per_s / 1e9);
    }
  }
  if (d.load_bytes_per_s > 0) {
    kind += fmt::format(", link {:.3g} GB/s up and {:.3g} GB/s down", d.load_bytes_per_s / 1e9,
                        d.store_bytes_per_s / 1e9);
  }
  return fmt::format(
      "{}; budget {} (smallest that works {}; beyond {} only device updates use more)", kind,
      format_bytes(d.memory_bytes), format_bytes(p.smallest_device_bytes),
      format_bytes(p.full_device_bytes));
}

std::string weights_text(const TrainOptions& options, const TrainSetup& setup) {
  if (setup.restores) return "from the checkpoint";
  return setup.weights ? "loaded" : fmt::format("random (seed {})", options.seed);
}

/// The vocabulary of a preset that has got a tokenizer.
std::string vocabulary_text(const TrainOptions& options) {
  if (options.text.vocabulary == 0) return "";
  return fmt::format("; vocabulary {} (--tokenizer {})", options.text.vocabulary,
                     options.tokenizer);
}

std::string data_line(const TrainOptions& options, const TrainSetup& setup) {
  const TokenData& data = *setup.data.tokens;
  std::string text = samples_text(data, setup.shape.length) + ", " +
                     (options.order == DataOrder::Shuffled ? "shuffled" : "sequential");
  const auto& [labels, documents] = setup.data.annotations;
  if (labels) text += fmt::format("; labels for {} of the tokens", labels->num_targets());
  // Those of conversations include the filling of rows, and a notice has their number.
  if (documents && !options.text.has_conversations) {
    text += fmt::format("; {} documents", documents->num_documents());
  }
  return text;
}

/// The evaluation data, and how much of it an evaluation uses.
std::string evaluation_line(const TrainSetup& setup) {
  const BatchShape& shape = *setup.eval_shape;
  const RunData& data = *setup.eval_data;
  const uint64_t all = data.num_samples(shape.length);
  const uint64_t used = std::min(all, shape.num_samples());
  const std::string held_out =
      fmt::format("{} of {} samples are held out (--eval-split)", all,
                  data.tokens->num_samples(static_cast<size_t>(shape.length)));
  return (data.chosen ? held_out : samples_text(*data.tokens, shape.length)) +
         (used == all ? "; an evaluation uses all samples"
                      : fmt::format("; an evaluation uses the first {} samples (--eval-batches {})",
                                    used, shape.num_batches));
}

std::string left_to_next_step(const Plan& plan) {
  std::string text;
  if (const uint32_t num = plan.count(&ChunkRecord::is_deferred); num > 0) {
    const uint32_t num_delayed = plan.count(&ChunkRecord::is_delayed);
    text += fmt::format("; {} {} updates", num_delayed > 0 ? "delays" : "defers", num);
  }
  if (const uint32_t num = plan.count(&ChunkRecord::is_speculative); num > 0) {
    text += fmt::format(", of which {} are speculative,", num);
  }
  if (const uint32_t num = plan.count(&ChunkRecord::ends_on_device); num > 0) {
    text +=
        fmt::format("{} the weights of {} chunks", text.empty() ? "; keeps" : " and keeps", num);
  }
  if (const uint32_t num = plan.count(&ChunkRecord::is_on_device); num > 0) {
    text += fmt::format(", with the optimizer state of {},", num);
  }
  if (!text.empty()) text += " until the next step";
  if (const uint32_t num = plan.count(&ChunkRecord::is_on_owner); num > 0) {
    text += fmt::format("; the state of {} chunks is on the devices of their owners", num);
  }
  return text;
}

/// The rates of the machine during this step: measured for the kernels and the optimizer, given for
/// the emulated link and network.
Machine measured_machine(const TrainSetup& setup, const StepResult& r) {
  const Layout& layout = *setup.prepared.layout;
  uint64_t num_updated = 0;
  for (const ChunkIndex c : setup.prepared.plan.chunks_that(&ChunkRecord::is_at_home)) {
    num_updated += layout.chunk_elements(c);
  }
  const double update_bytes =
      static_cast<double>(num_updated) *
      update_bytes_per_parameter(layout.weight_type(), layout.gradient_type());
  const bool shared_cores = setup.device.profile.kind == DeviceKind::Host;
  const bool emulates = setup.device.emulate_compute.has_value();
  // While kernels and updates share the cores, each of them gets half of the time.
  const double shared_s = shared_cores && !emulates ? r.overlap_s / 2 : 0;
  const double compute_s = r.compute_s - shared_s, update_s = r.update_s - shared_s;
  return {.flops_per_s = setup.prepared.flops / compute_s,
          .load_bytes_per_s = setup.device.load_bytes_per_s,
          .store_bytes_per_s = setup.device.store_bytes_per_s,
          .network_bytes_per_s = setup.rates.machine.network_bytes_per_s /
                                 setup.prepared.division.place.ranks_per_machine(),
          .update_bytes_per_s = update_s > 0 ? update_bytes / update_s : 0,
          .shared_cores = shared_cores,
          .emulate_compute = emulates};
}

void add_bound(StepRecord& record, const TrainSetup& setup, const StepResult& r) {
  if (r.compute_s <= 0) return;
  const Preparation& p = setup.prepared;
  const Bound bound = lower_bound(p.trace, *p.layout, p.plan, measured_machine(setup, r),
                                  updates_after_norm(p.options));
  record.bound_seconds = bound.seconds;
  record.bound_by = bound.bound_by;
  record.bound_share = bound.seconds / r.step_s;
}

std::string named(std::string_view name, const std::string& value) {
  return fmt::format("{:<8}{}", name, value);
}

/// Says that the run does not apply the dropout of config.json; empty if it does.
std::string dropout_text(const TrainOptions& options, const ModelSource& source) {
  if (source.dropout == 0 || options.dropout > 0) return "";
  return fmt::format(
      "config.json has dropout {0:g}, which transformers applies in training; this run applies "
      "none (--dropout {0:g} applies it)",
      source.dropout);
}

/// The first lines of every header: model, data, step and device.
std::string ranks_line(const TrainSetup& setup) {
  const Preparation& p = setup.prepared;
  const Division& d = p.division;
  if (setup.ranks == nullptr)
    return fmt::format("1, which adds {} groups of micro-batches", d.num_groups);
  return fmt::format(
      "{} processes; this one, rank {}, computes {} of {} micro-batches, in {} of {} groups{}; the "
      "lines below are for one rank",
      d.place.num_ranks, d.place.rank, p.share.micro_batches.count, d.num_micro_batches,
      p.share.groups.count, d.num_groups,
      std::string(d.sums_on_devices ? ", which the devices add" : "") +
          (d.chains_sums ? ", whose sums pass from machine to machine" : ""));
}

/// A flag with which a step computes something else than the default.
struct InexactMode {
  std::string_view flag, meaning;
};
std::vector<InexactMode> inexact_modes(const Preparation& p) {
  std::vector<InexactMode> modes;
  if (p.division.sum_type == DType::BF16) {
    modes.push_back({"--group-dtype bf16", "each sum of a group is rounded to bf16"});
  }
  if (p.options.delayed_updates) {
    modes.push_back({"--update delayed",
                     "a gradient is that of weights which are one update older, except after a "
                     "save, an evaluation or a sample"});
  }
  return modes;
}

std::vector<std::string> run_lines(const TrainOptions& options, const TrainSetup& setup) {
  const ModelSizes c = sizes_of(setup.source.config);
  const BatchShape& s = setup.shape;
  std::vector<std::string> lines;
  if (setup.device.emulate_compute) {
    lines.emplace_back(
        "emulated compute: kernels sleep for their predicted time, there are no losses");
  }
  lines.push_back(named(
      "model",
      fmt::format("{}: {} layers, {} channels, {} parameters, {}; weights: {}{}", setup.source.name,
                  c.num_layers, c.channels, format_count(num_parameters(setup.source.config)),
                  name_of(options.dtype), weights_text(options, setup), vocabulary_text(options))));
  if (const std::string text = dropout_text(options, setup.source); !text.empty()) {
    lines.push_back(named("", text));
  }
  lines.push_back(named("data", data_line(options, setup)));
  if (setup.eval_data) lines.push_back(named("eval", evaluation_line(setup)));
  for (const std::string& notice : setup.notices) lines.push_back(named("", notice));
  const bool vertical = setup.prepared.schedule.micro_batch_order == MicroBatchOrder::Vertical;
  lines.push_back(named(
      "step", fmt::format("{} micro-batches{} x {} sequences x {} tokens = {} tokens; {} steps",
                          s.num_batches, vertical ? " (vertical)" : "", s.batch_size, s.length,
                          s.num_tokens(), setup.num_steps())));
  if (setup.prepared.division.stores_groups()) lines.push_back(named("ranks", ranks_line(setup)));
  for (const auto& [flag, meaning] : inexact_modes(setup.prepared)) {
    lines.push_back(named("inexact", fmt::format("{}: {}", flag, meaning)));
  }
  lines.push_back(named("device", device_line(setup) + why_host(options, setup)));
  return lines;
}

std::string chosen_text(const Preparation& p) {
  return p.candidates.size() == 1 ? "as requested" : "chosen";
}

/// "device 23.4 MiB: chunk blocks 20 MiB, workspace 3.4 MiB": the largest first; entries
/// below one hundredth are added up as "other".
std::string tier_text(const Ledger& ledger, Tier tier) {
  const size_t total = ledger.total(tier);
  std::vector<LedgerEntry> entries;
  size_t rest = 0;
  for (const LedgerEntry& e : ledger.entries()) {
    if (e.tier != tier) continue;
    if (e.bytes * 100 < total) {
      rest += e.bytes;
    } else {
      entries.push_back(e);
    }
  }
  std::ranges::stable_sort(entries, std::ranges::greater{}, &LedgerEntry::bytes);
  std::string text = fmt::format("{} {}", name_of(tier), format_bytes(total));
  std::string_view gap = ": ";
  for (const LedgerEntry& e : entries) {
    text += fmt::format("{}{} {}", gap, e.name, format_bytes(e.bytes));
    gap = ", ";
  }
  return rest > 0 ? text + fmt::format("{}other {}", gap, format_bytes(rest)) : text;
}

/// Settings, prediction, traffic.
std::string plan_text(const TrainSetup& setup) {
  const Preparation& p = setup.prepared;
  const Candidate& c = p.candidates[p.chosen];
  const Schedule& s = c.schedule;
  std::string text =
      fmt::format("{}: {} order, recompute {}, activations on {}, updates {}", chosen_text(p),
                  name_of(s.micro_batch_order), name_of(s.recompute, p.num_layers),
                  s.activations == ActivationPlacement::Device ? "device" : "host",
                  name_of_updates(p.options, s));
  const auto& [seconds, bound, num_simulated] = setup.predicted;
  if (seconds > 0) {
    text += fmt::format("; {:.4g} s a step predicted{}, {:.0f} tok/s, {:.0f} % of the bound by {}",
                        seconds, setup.ranks != nullptr ? " for all ranks together" : "",
                        static_cast<double>(setup.shape.num_tokens()) / seconds,
                        100 * bound.seconds / seconds, bound.bound_by);
  }
  return text + fmt::format("; loads {}, stores {}", format_bytes(p.plan.loaded_bytes),
                            format_bytes(p.plan.stored_bytes));
}

}  // namespace

std::vector<std::string> header_lines(const TrainOptions& options, const TrainSetup& setup) {
  const Preparation& p = setup.prepared;
  std::vector<std::string> lines = run_lines(options, setup);
  lines.push_back(
      named("chunks", fmt::format("{} of {}, {} blocks; a step loads {} and stores {}{}",
                                  p.layout->num_chunks(), format_bytes(p.layout->chunk_bytes()),
                                  p.num_blocks, format_bytes(p.plan.loaded_bytes),
                                  format_bytes(p.plan.stored_bytes), left_to_next_step(p.plan))));
  lines.push_back(
      named("machine", machine_line(setup.rates.machine) + "; " + setup.rates.source()));
  if (!p.layers.empty()) lines.push_back(named("layers", layers_text(p)));
  lines.push_back(named("plan", fmt::format("{} (*): {}", chosen_text(p), why_chosen(p))));
  return lines;
}

std::string format_brief_header(const TrainOptions& options, const TrainSetup& setup) {
  const Preparation& p = setup.prepared;
  std::vector<std::string> lines = run_lines(options, setup);
  lines.push_back(named("memory", fmt::format("{}; {}", tier_text(p.ledger, Tier::Device),
                                              tier_text(p.ledger, Tier::Host))));
  lines.push_back(named("plan", plan_text(setup)));
  if (options.save.empty() && !setup.device.emulate_compute) {
    lines.push_back(named("save", "nothing is saved; to keep the weights, give --save DIR"));
  }
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

std::string format_header(const TrainOptions& options, const TrainSetup& setup) {
  const Preparation& p = setup.prepared;
  return fmt::format("{}\n", fmt::join(header_lines(options, setup), "\n")) + candidate_table(p) +
         p.ledger.table();
}

StepRecord make_record(const TrainSetup& setup, const StepContext& context, const StepResult& r) {
  const uint64_t tokens = setup.shape.num_tokens();
  StepRecord record;
  record.step = context.step + 1;
  record.epoch = context.epoch;
  record.emulates_compute = setup.device.emulate_compute.has_value();
  record.loss = r.loss;
  record.grad_norm = r.grad_norm;
  record.learning_rate = context.learning_rate;
  record.step_seconds = r.step_s;
  if (r.step_s > 0) {
    record.tokens_per_second = static_cast<double>(tokens) / r.step_s;
    record.tflops =
        training_flops(setup.source.config, tokens, setup.shape.length) / r.step_s / 1e12;
  }
  add_bound(record, setup, r);
  record.stall_seconds = r.stall_s;
  record.loaded_bytes = r.loaded_bytes;
  record.stored_bytes = r.stored_bytes;
  record.device_peak_bytes = context.device_peak_bytes;
  record.host_bytes = setup.prepared.ledger.total(Tier::Host);
  if (setup.prepared.plan.count(&ChunkRecord::is_speculative) > 0) {
    record.speculated_chunks = r.speculated_chunks;
    record.rolled_back_chunks = r.rolled_back_chunks;
  }
  for (const InexactMode& mode : inexact_modes(setup.prepared)) {
    record.inexact = record.inexact ? fmt::format("{} {}", *record.inexact, mode.flag) : mode.flag;
  }
  return record;
}

std::string format_summary(const TrainSetup& setup, const Summary& s) {
  const uint64_t steps = s.end.steps - s.first_step, tokens = steps * setup.shape.num_tokens();
  std::string text = fmt::format("{} steps", steps);
  if (s.first_step > 0) text += fmt::format(" after step {}", s.first_step);
  text += fmt::format(", {} tokens in {}, {:.0f} tok/s", tokens, format_duration(s.seconds),
                      s.seconds > 0 ? static_cast<double>(tokens) / s.seconds : 0.0);
  if (s.end.steps == s.first_step) {
    text += "\n";
  } else {
    text += setup.device.emulate_compute ? "; emulated compute: no losses\n"
                                         : fmt::format("; last loss {:.4f}\n", s.last_loss);
  }
  const auto out = std::back_inserter(text);
  if (s.num_skipped > 0) {
    fmt::format_to(out, "{} updates skipped, because gradients were not finite\n", s.num_skipped);
  }
  if (s.spent.total_s() > 0) {
    fmt::format_to(out, "time: {}\n{}", format_spent(s.spent), traffic_lines(setup.prepared));
  }
  const Ledger& ledger = setup.prepared.ledger;
  // The driver's tables are no memory of the process, and its libraries are part of the program.
  size_t planned = ledger.total(Tier::Host) - ledger.bytes(kDriver, Tier::Host);
  if (setup.device.profile.kind == DeviceKind::Host) planned += ledger.total(Tier::Device);
  const size_t explained = planned + s.rss_before_bytes + s.sample_bytes;
  const size_t rest = s.end.peak_rss_bytes > explained ? s.end.peak_rss_bytes - explained : 0;
  const std::string sample =
      s.sample_bytes == 0 ? "" : fmt::format(", a sample {}", format_bytes(s.sample_bytes));
  if (setup.ranks != nullptr) {
    // The resident memory of a rank contains pages of other ranks that it has read.
    fmt::format_to(out,
                   "peak RSS {} of rank 0, with memory of other ranks; planned {} for this rank\n",
                   format_bytes(s.end.peak_rss_bytes), format_bytes(planned));
    return text + fmt::format("state_hash {:016x}\n", s.end.state_hash);
  }
  fmt::format_to(out, "peak RSS {}: planned {}, the program {}{}, unexplained {} ({:.1f} %)\n",
                 format_bytes(s.end.peak_rss_bytes), format_bytes(planned),
                 format_bytes(s.rss_before_bytes), sample, format_bytes(rest),
                 100.0 * static_cast<double>(rest) / static_cast<double>(s.end.peak_rss_bytes));
  fmt::format_to(out, "state_hash {:016x}\n", s.end.state_hash);
  return text;
}

}  // namespace ebb

#include "tools/train_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "device/errors.h"
#include "device/host/parallel.h"
#include "scheduler/choose.h"
#include "tools/plan_report.h"
#include "tools/progress.h"

namespace ebb {
namespace {

/// Where nobody asked for the host.
std::string why_host(const TrainOptions& options, const TrainSetup& setup) {
  const bool chosen = options.device == DeviceChoice::Auto && !setup.device.pretend;
  return chosen && setup.device.kind == DeviceKind::Host ? "; no GPU: " + why_no_cuda() : "";
}

std::string device_line(const TrainSetup& setup) {
  const Preparation& p = setup.prepared;
  const DeviceOptions& d = setup.device;
  std::string kind = "cuda";
  if (d.kind == DeviceKind::Host) {
    kind = fmt::format("host, {} threads", d.num_threads > 0 ? d.num_threads : num_usable_cores());
    if (p.layout->weight_type() == DType::BF16) {
      kind += fmt::format(", {} arithmetic", name_of(*d.arithmetic));
    }
  }
  if (d.pretend) {
    kind += fmt::format(", pretending {:.4g} TFLOP/s", d.pretend->flops_per_s / 1e12);
    if (d.pretend->bytes_per_s > 0) {
      kind += fmt::format(" and {:.4g} GB/s of memory", d.pretend->bytes_per_s / 1e9);
    }
  }
  if (d.load_bytes_per_s > 0) {
    kind += fmt::format(", link {:.3g} GB/s up and {:.3g} GB/s down", d.load_bytes_per_s / 1e9,
                        d.store_bytes_per_s / 1e9);
  }
  return fmt::format("{}; budget {} (smallest that works {}, all resident {})", kind,
                     format_bytes(d.memory_bytes), format_bytes(p.smallest_device_bytes),
                     format_bytes(p.resident_device_bytes));
}

std::string weights_text(const TrainOptions& options, const TrainSetup& setup) {
  if (setup.restores) return "from the checkpoint";
  return setup.weights ? "loaded" : fmt::format("random (seed {})", options.seed);
}

std::string data_line(const TrainOptions& options, const TrainSetup& setup) {
  const TokenData& data = *setup.data;
  return fmt::format("{} tokens ({}) in {} files; {} samples, {}", data.num_tokens(),
                     name_of(data.type()), data.num_files(),
                     data.num_samples(static_cast<size_t>(setup.shape.length)),
                     options.order == DataOrder::Shuffled ? "shuffled" : "sequential");
}

std::string left_to_next_step(const Plan& plan) {
  std::string text;
  if (!plan.carried.empty()) text += fmt::format("; leaves {} updates", plan.carried.size());
  if (!plan.held_at_end.empty()) {
    text += fmt::format("{} weights of {} chunks", text.empty() ? "; leaves" : " and",
                        plan.held_at_end.size());
  }
  if (!plan.device_updates.empty()) {
    text +=
        fmt::format(", with the state of {} that the device updates,", plan.device_updates.size());
  }
  return text.empty() ? text : text + " to the next";
}

/// The machine as this step found it: its kernels' and its optimizer's own speed, and the emulated
/// link.
Machine measured_machine(const TrainSetup& setup, const StepResult& r) {
  const Layout& layout = *setup.prepared.layout;
  const double update_bytes = static_cast<double>(layout.num_model_parameters()) *
                              update_bytes_per_parameter(layout.gradient_type());
  const bool shared_cores = setup.device.kind == DeviceKind::Host;
  const bool pretends = setup.device.pretend.has_value();
  // What ran at once on the same cores took, alone, half of that time each.
  const double shared_s = shared_cores && !pretends ? r.overlap_s / 2 : 0;
  const double compute_s = r.compute_s - shared_s, update_s = r.update_s - shared_s;
  return {.flops_per_s = setup.prepared.flops / compute_s,
          .load_bytes_per_s = setup.device.load_bytes_per_s,
          .store_bytes_per_s = setup.device.store_bytes_per_s,
          .update_bytes_per_s = update_s > 0 ? update_bytes / update_s : 0,
          .shared_cores = shared_cores,
          .pretended_kernels = pretends};
}

void add_bound(StepRecord& record, const TrainSetup& setup, const StepResult& r) {
  if (r.compute_s <= 0) return;
  const Preparation& p = setup.prepared;
  const Bound bound = lower_bound(p.trace, *p.layout, p.plan, measured_machine(setup, r),
                                  p.options.max_grad_norm > 0);
  record.bound_seconds = bound.seconds;
  record.bound_by = bound.bound_by;
  record.bound_share = bound.seconds / r.step_s;
}

}  // namespace

std::string format_count(uint64_t count) {
  const auto value = static_cast<double>(count);
  if (count >= 1'000'000'000) return fmt::format("{:.1f} B", value / 1e9);
  if (count >= 1'000'000) return fmt::format("{:.1f} M", value / 1e6);
  return fmt::to_string(count);
}

std::vector<std::string> header_lines(const TrainOptions& options, const TrainSetup& setup) {
  const Preparation& p = setup.prepared;
  const ModelSizes c = sizes_of(setup.source.config);
  const BatchShape& s = setup.shape;
  std::vector<std::string> lines;
  if (setup.device.pretend) {
    lines.emplace_back("rehearsal: kernels sleep for their predicted time, there are no losses");
  }
  const auto line = [&lines](std::string_view name, const std::string& value) {
    lines.push_back(fmt::format("{:<8}{}", name, value));
  };
  line("model",
       fmt::format("{}: {} layers, {} channels, {} parameters, {}; weights: {}", setup.source.name,
                   c.num_layers, c.channels, format_count(num_parameters(setup.source.config)),
                   name_of(options.dtype), weights_text(options, setup)));
  line("data", data_line(options, setup));
  const bool vertical = p.options.micro_batch_order == MicroBatchOrder::Vertical;
  line("step", fmt::format("{} micro-batches{} x {} sequences x {} tokens = {} tokens; {} steps",
                           s.num_batches, vertical ? " (vertical)" : "", s.batch_size, s.length,
                           s.num_tokens(), setup.num_steps()));
  line("device", device_line(setup) + why_host(options, setup));
  line("chunks", fmt::format("{} of {}, {} blocks; a step loads {} and stores {}{}",
                             p.layout->num_chunks(), format_bytes(p.layout->chunk_bytes()),
                             p.num_blocks, format_bytes(p.plan.loaded_bytes),
                             format_bytes(p.plan.stored_bytes), left_to_next_step(p.plan)));
  line("machine", machine_line(setup.rates.machine) + "; " + setup.rates.source());
  line("plan",
       fmt::format("{} (*): {}", p.candidates.size() == 1 ? "as told" : "chosen", why_chosen(p)));
  return lines;
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
  record.rehearsal = setup.device.pretend.has_value();
  record.loss = r.loss;
  record.grad_norm = r.grad_norm;
  record.learning_rate = context.learning_rate;
  record.step_seconds = r.step_s;
  record.tokens_per_second = static_cast<double>(tokens) / r.step_s;
  record.tflops = training_flops(setup.source.config, tokens, setup.shape.length) / r.step_s / 1e12;
  add_bound(record, setup, r);
  record.stall_seconds = r.stall_s;
  record.loaded_bytes = r.loaded_bytes;
  record.stored_bytes = r.stored_bytes;
  record.device_peak_bytes = context.device_peak_bytes;
  record.host_bytes = setup.prepared.ledger.total(Tier::Host);
  return record;
}

std::string format_summary(const TrainSetup& setup, const Summary& s) {
  const uint64_t tokens = (s.end.steps - s.first_step) * setup.shape.num_tokens();
  std::string text = fmt::format("{} steps, {} tokens in {}, {:.0f} tok/s", s.end.steps, tokens,
                                 format_duration(s.seconds),
                                 s.seconds > 0 ? static_cast<double>(tokens) / s.seconds : 0.0);
  if (s.first_step > 0) text += fmt::format(" from step {} on", s.first_step);
  if (s.end.steps == s.first_step) {
    text += "\n";
  } else {
    text += setup.device.pretend ? "; a rehearsal: no losses\n"
                                 : fmt::format("; last loss {:.4f}\n", s.last_loss);
  }
  const auto out = std::back_inserter(text);
  if (s.num_skipped > 0) {
    fmt::format_to(out, "{} updates skipped, for gradients that were not numbers\n", s.num_skipped);
  }
  size_t planned = setup.prepared.ledger.total(Tier::Host);
  if (setup.device.kind == DeviceKind::Host) planned += setup.prepared.ledger.total(Tier::Device);
  const size_t explained = planned + s.rss_before_bytes;
  const size_t rest = s.end.peak_rss_bytes > explained ? s.end.peak_rss_bytes - explained : 0;
  fmt::format_to(out, "peak RSS {}: planned {}, the program {}, unexplained {} ({:.1f} %)\n",
                 format_bytes(s.end.peak_rss_bytes), format_bytes(planned),
                 format_bytes(s.rss_before_bytes), format_bytes(rest),
                 100.0 * static_cast<double>(rest) / static_cast<double>(s.end.peak_rss_bytes));
  fmt::format_to(out, "state_hash {:016x}\n", s.end.state_hash);
  return text;
}

}  // namespace ebb

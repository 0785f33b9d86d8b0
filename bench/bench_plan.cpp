// How long does planning take, and how near to its bound is what it plans for a model far beyond
// the machine?
//
//   bench_plan
//
// First a trace of some 100,000 chunk accesses, planned several times: the median counts. Then
// GPT-3 175B, a step of 16,384 tokens, recomputed by block, on one GPU of 80 GiB, with and without
// clipping, with updates waited for or beside the next step's forward: simulated step against the
// bound. All plans are validated. Last, the choice between all settings for a step of 65,536
// tokens: how long it takes, by the clock and of the processor.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "bench/gpt2_preset.h"
#include "bench/thread_times.h"
#include "scheduler/plan/chunk_trace.h"
#include "scheduler/plan/simulate.h"
#include "scheduler/plan/validate.h"
#include "scheduler/run/trainer.h"
#include "scheduler/search/choose.h"

namespace ebb::bench {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool report_problems(const Plan& plan, const Trace& trace, const Layout& layout,
                     const PlanOptions& options) {
  const auto start = Clock::now();
  const std::vector<std::string> problems = validate(plan, trace, layout, options);
  for (const std::string& problem : problems) fmt::print("  NOT VALID: {}\n", problem);
  fmt::print("  validated in {:.3f} s\n", seconds_since(start));
  return problems.empty();
}

/// A stack of layers of one parameter each, a chunk of weights, forward and back, some
/// micro-batches.
Trace layered_trace(uint32_t num_layers, uint32_t num_micro_batches) {
  Trace trace;
  const auto add = [&](Phase phase, uint32_t micro_batch, uint32_t layer) {
    trace.calls.push_back({.name = "layer",
                           .phase = phase,
                           .micro_batch = micro_batch,
                           .first_use = static_cast<uint32_t>(trace.uses.size()),
                           .num_uses = 1,
                           .cost = {}});
    trace.uses.push_back({layer, 0, true, phase == Phase::Backward});
  };
  for (uint32_t k = 0; k < num_micro_batches; ++k) {
    for (uint32_t layer = 0; layer < num_layers; ++layer) add(Phase::Forward, k, layer);
    for (uint32_t layer = num_layers; layer-- > 0;) add(Phase::Backward, k, layer);
  }
  return trace;
}

bool measure_planning() {
  constexpr uint32_t kLayers = 1000, kMicroBatches = 25;
  constexpr int kRounds = 9;
  const size_t chunk_bytes = size_t{64} << 20;
  std::vector<ParameterInfo> infos;
  std::vector<ParameterId> order;
  for (uint32_t i = 0; i < kLayers; ++i) {
    infos.push_back({.name = "p", .shape = {static_cast<int64_t>(chunk_bytes / 2)}});
    order.push_back(i);
  }
  const Layout layout(std::move(infos), std::move(order), DType::BF16, DType::BF16, chunk_bytes);
  const Trace trace = layered_trace(kLayers, kMicroBatches);
  const size_t num_accesses = make_chunk_trace(trace, layout, true).uses.size();
  const PlanOptions options{.num_blocks = 500, .update_after_norm = false};
  std::vector<double> times;
  Plan plan;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = Clock::now();
    plan = make_plan(trace, layout, options);
    times.push_back(seconds_since(start));
  }
  std::sort(times.begin(), times.end());
  const double seconds = times[kRounds / 2];
  fmt::print(
      "planning {} chunk accesses, {} moments, {} blocks: {} operations in {:.4f} s (best "
      "{:.4f}), {:.2f} M accesses/s\n",
      num_accesses, trace.calls.size(), options.num_blocks, plan.ops.size(), seconds, times[0],
      1e-6 * static_cast<double>(num_accesses) / seconds);
  return report_problems(plan, trace, layout, options);
}

constexpr Machine kH200{.flops_per_s = 720e12,
                        .load_bytes_per_s = 53e9,
                        .store_bytes_per_s = 53e9,
                        .update_bytes_per_s = 240e9};

bool plan_gpt3(float max_grad_norm, UpdateOrder update) {
  const Gpt2 model(find_gpt2_preset("gpt3-175b"), 8, 2048, DType::BF16);
  const TrainerOptions options{
      .recompute = Recompute::Layer, .update = update, .max_grad_norm = max_grad_norm};
  auto start = Clock::now();
  const Preparation p = prepare(model, options, {.device_memory = size_t{80} << 30});
  const double prepare_s = seconds_since(start);
  start = Clock::now();
  const Simulation s = simulate(p.plan, p.trace, *p.layout, kH200);
  const double simulate_s = seconds_since(start);
  const Bound bound = lower_bound(p.trace, *p.layout, p.plan, kH200, max_grad_norm > 0);
  constexpr double kGB = 1e-9;
  fmt::print(
      "GPT-3 175B ({:.1f} B parameters), 16,384 tokens a step, 80 GiB, 720 TFLOP/s, 53 GB/s "
      "each way, 240 GB/s host, {}, updates {}\n",
      static_cast<double>(p.layout->num_model_parameters()) * 1e-9,
      max_grad_norm > 0 ? "clipped" : "no clipping",
      update == UpdateOrder::Wait ? "waited for" : "overlapped");
  fmt::print("  blocks: {} of 64 MiB, {} at the peak, {} is the least, {} all; arena {:.1f} GB\n",
             p.num_blocks, p.plan.peak_blocks, p.smallest_blocks, p.full_blocks,
             kGB * static_cast<double>(p.trace.arena_bytes));
  fmt::print(
      "  loaded {:.1f} GB, stored {:.1f} GB; prepared in {:.2f} s, {} operations simulated "
      "in {:.3f} s\n",
      kGB * static_cast<double>(p.plan.loaded_bytes),
      kGB * static_cast<double>(p.plan.stored_bytes), prepare_s, p.plan.ops.size(), simulate_s);
  fmt::print("  compute {:.2f} s, load {:.2f} s, store {:.2f} s, update {:.2f} s\n",
             bound.compute_s, bound.load_s, bound.store_s, bound.update_s);
  fmt::print(
      "  simulated step {:.3f} s, bound {:.3f} s ({}), ratio {:.4f}; compute stalls {:.3f} s\n",
      s.seconds, bound.seconds, bound.bound_by, s.seconds / bound.seconds, s.stall_s);
  return report_problems(p.plan, p.trace, *p.layout,
                         {.num_blocks = p.num_blocks,
                          .update_after_norm = max_grad_norm > 0,
                          .defer_updates = update == UpdateOrder::Overlap});
}

void choose_for_gpt3() {
  const Gpt2 model(find_gpt2_preset("gpt3-175b"), 8, 2048, DType::BF16);
  std::vector<double> times, processor_times;
  Preparation p;
  for (int round = 0; round < 5; ++round) {
    const auto start = Clock::now();
    const double used_s = process_processor_s();
    p = prepare(model, {.gradient_accumulation = 4}, {.device_memory = size_t{128} << 30}, kH200);
    times.push_back(seconds_since(start));
    processor_times.push_back(process_processor_s() - used_s);
  }
  std::sort(times.begin(), times.end());
  std::sort(processor_times.begin(), processor_times.end());
  size_t num_fit = 0;
  for (const Candidate& c : p.candidates) num_fit += c.why_not.empty();
  fmt::print(
      "GPT-3 175B, 4 x 16,384 tokens a step, 128 GiB: chosen from {} candidates ({} fit) in {:.3f} "
      "s (best {:.3f}), {:.3f} s of processor time (best {:.3f}): {}, recompute {}, updates {}; {} "
      "operations\n",
      p.candidates.size(), num_fit, times[2], times[0], processor_times[2], processor_times[0],
      name_of(p.options.micro_batch_order), name_of(p.options.recompute), name_of(p.options.update),
      p.plan.ops.size());
}

}  // namespace
}  // namespace ebb::bench

int main() {
  bool good = ebb::bench::measure_planning();
  for (float max_grad_norm : {0.0f, 1.0f}) {
    for (ebb::UpdateOrder update : {ebb::UpdateOrder::Wait, ebb::UpdateOrder::Overlap}) {
      good = ebb::bench::plan_gpt3(max_grad_norm, update) && good;
    }
  }
  ebb::bench::choose_for_gpt3();
  return good ? 0 : 1;
}

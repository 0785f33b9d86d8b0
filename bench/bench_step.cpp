// What does it cost to train with a quarter of the device memory?
//
//   bench_step [--preset gpt2-bytes] [--rounds 5] [--threads N] [--chunk-mib 8]
//              [--accumulate 4] [--link] [--no-clip]
//
// Two trainers in one process, interleaved step by step: one with everything resident, one whose
// budget holds the same activations and 25 % of what the resident one uses for weights and
// gradients. Losses and norms must be equal to the bit. Printed: step times, their ratio, stall,
// the lower bound and the share of it that was reached.
// --link: the fastest link on which the larger direction takes half of compute's time, or more, for
// the plan that is chosen there.
// A round counts when other processes took less than 4 % of a core; medians of the rounds that
// count.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "bench/exit_code.h"
#include "bench/gpt2_preset.h"
#include "bench/load_gate.h"
#include "bench/random_batches.h"
#include "scheduler/plan/simulate.h"
#include "scheduler/run/trainer.h"
#include "tools/machine_rates.h"
#include "tools/trial.h"

namespace ebb::bench {
namespace {

constexpr int64_t kBatch = 4, kLength = 256;

struct Arguments {
  std::string preset = "gpt2-bytes";
  int rounds = 5;
  int threads = 0;
  size_t chunk_mib = 8;
  uint32_t accumulate = 4;
  bool link = false;
  bool clip = true;
};

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--link" || flag == "--no-clip") {
      (flag == "--link" ? a.link : a.clip) = flag == "--link";
      continue;
    }
    const char* value = i + 1 < argc ? argv[++i] : "";
    if (flag == "--preset") {
      a.preset = value;
    } else if (flag == "--rounds") {
      a.rounds = std::atoi(value);
    } else if (flag == "--threads") {
      a.threads = std::atoi(value);
    } else if (flag == "--chunk-mib") {
      a.chunk_mib = std::strtoull(value, nullptr, 10);
    } else if (flag == "--accumulate") {
      a.accumulate = static_cast<uint32_t>(std::atoi(value));
    } else {
      throw ConfigError(
          "no flag " + flag +
          "; there are --preset, --rounds, --threads, --chunk-mib, --accumulate, --link, "
          "--no-clip");
    }
  }
  return a;
}

struct Setup {
  Preparation prepared;
  std::unique_ptr<Device> device;
  std::unique_ptr<Trainer> trainer;
  std::vector<StepResult> steps;

  Setup(const Model& model, Preparation p, const Arguments& a, double load, double store)
      : prepared(std::move(p)),
        device(create_device({.memory_bytes = prepared.ledger.total(Tier::Device),
                              .num_threads = a.threads,
                              .load_bytes_per_s = load,
                              .store_bytes_per_s = store})),
        trainer(std::make_unique<Trainer>(model, *device, prepared)) {}
};

uint32_t peak_activation_blocks(const Preparation& p) {
  return static_cast<uint32_t>((p.trace.arena_bytes + p.layout->chunk_bytes() - 1) /
                               p.layout->chunk_bytes());
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}
double median_of(const std::vector<StepResult>& steps, double StepResult::*member) {
  std::vector<double> values;
  for (const StepResult& s : steps) values.push_back(s.*member);
  return median(values);
}

/// Makes this machine's rates those for this model.
void fit(MachineRates& rates, const Gpt2& model, const DeviceOptions& device, const Arguments& a) {
  fit_to_model(rates,
               {.config = model.config(),
                .batch_size = kBatch,
                .length = kLength,
                .accumulation = a.accumulate,
                .chunk_bytes = a.chunk_mib << 20},
               device, {});
  fmt::print("machine {}\n", rates.source());
}

/// Of a step with everything resident.
double compute_seconds(const Gpt2& model, const Preparation& all, const Arguments& a,
                       const RandomBatches& data) {
  Setup resident(model, all, a, 0, 0);
  std::vector<double> seconds;
  for (int i = 0; i < 4; ++i) {
    seconds.push_back(resident.trainer->step(data.batches(), 3e-4).compute_s);
  }
  return median(std::vector(seconds.begin() + 1, seconds.end()));
}

double larger_direction(const Plan& plan) {
  return static_cast<double>(std::max(plan.loaded_bytes, plan.stored_bytes));
}

/// Bytes a second, each way. Another link, another plan: a little faster than this, and the one
/// that is chosen moves its larger direction in less than `seconds`.
template <class PrepareOn>
double fastest_link(double seconds, double bytes, const PrepareOn& prepare_on) {
  double slow = bytes / seconds / 2, fast = bytes / seconds * 2;
  for (int i = 0; i < 10; ++i) {
    const double middle = std::sqrt(slow * fast);
    const bool takes_long = larger_direction(prepare_on(middle).plan) / middle >= seconds;
    (takes_long ? slow : fast) = middle;
  }
  return slow;
}

bool run_round(Setup& resident, Setup& budget, const RandomBatches& data,
               std::vector<double>& ratios) {
  const LoadGate gate;
  const StepResult a = resident.trainer->step(data.batches(), 3e-4);
  const StepResult b = budget.trainer->step(data.batches(), 3e-4);
  if (std::memcmp(&a.loss, &b.loss, 8) != 0 || std::memcmp(&a.grad_norm, &b.grad_norm, 8) != 0) {
    fmt::print("WRONG: loss {:.17g} and {:.17g}, norm {:.17g} and {:.17g}\n", a.loss, b.loss,
               a.grad_norm, b.grad_norm);
    std::exit(1);
  }
  const bool quiet = gate.quiet();
  fmt::print("  {} resident {:.3f} s, budget {:.3f} s (stall {:.3f} s), ratio {:.3f}\n",
             quiet ? "quiet" : "LOUD ", a.step_s, b.step_s, b.stall_s, b.step_s / a.step_s);
  if (!quiet) return false;
  resident.steps.push_back(a);
  budget.steps.push_back(b);
  ratios.push_back(b.step_s / a.step_s);
  return true;
}

int run(const Arguments& a) {
  const Gpt2 model(find_gpt2_preset(a.preset), kBatch, kLength, DType::BF16);
  TrainerOptions options{.dtype = DType::BF16,
                         .chunk_bytes = a.chunk_mib << 20,
                         .recompute = Recompute::None,
                         .gradient_accumulation = a.accumulate,
                         .max_grad_norm = a.clip ? 1.0f : 0.0f};
  const Preparation all = prepare(model, options, {.num_threads = a.threads});
  const uint32_t activations = peak_activation_blocks(all);
  const uint32_t state = all.full_blocks - activations;
  const uint32_t blocks = std::max(all.smallest_blocks, activations + state / 4);
  const size_t less = (all.full_blocks - blocks) * all.layout->chunk_bytes();
  const Budgets budgets{.device_memory = all.full_device_bytes - less, .num_threads = a.threads};
  const DeviceOptions host{.num_threads = a.threads};
  MachineRates rates = machine_rates(host, options.dtype, options.dtype, {});
  const double copy_bytes_per_s = rates.machine.copy_bytes_per_s;
  fit(rates, model, host, a);
  Machine& machine = rates.machine;
  Preparation quarter = prepare(model, options, budgets, machine);
  fmt::print("{}: {:.1f} M parameters, {} tokens a step, chunks of {} MiB\n", a.preset,
             static_cast<double>(all.layout->num_model_parameters()) / 1e6,
             a.accumulate * kBatch * kLength, a.chunk_mib);
  fmt::print(
      "resident: {} blocks; budget: {} blocks, {} for activations and {:.0f} % of the rest; "
      "smallest {}\n",
      all.num_blocks, quarter.num_blocks, activations,
      100.0 * (quarter.num_blocks - activations) / state, all.smallest_blocks);
  const RandomBatches data(model.config().vocabulary, kBatch, kLength, a.accumulate);
  if (a.link) {
    const double half_s = compute_seconds(model, all, a, data) / 2;
    const auto prepare_on = [&](double rate) {
      machine.load_bytes_per_s = machine.store_bytes_per_s = rate;
      return prepare(model, options, budgets, machine);
    };
    quarter = prepare_on(fastest_link(half_s, larger_direction(quarter.plan), prepare_on));
    if (larger_direction(quarter.plan) < half_s * machine.load_bytes_per_s) {
      throw ConfigError("on no link tried does the larger direction take half of compute's time");
    }
  }
  const double link = a.link ? machine.load_bytes_per_s : 0;
  const Plan plan = quarter.plan;
  const bool vertical = quarter.options.micro_batch_order == MicroBatchOrder::Vertical;
  const bool offload = quarter.options.activations == ActivationPlacement::Offload;
  fmt::print("{} micro-batches, {}, activations {}, {}\n", a.accumulate,
             vertical ? "block by block" : "one after the other", offload ? "may leave" : "stay",
             a.clip ? "clipped" : "not clipped");

  const double predicted_s = simulate(plan, quarter.trace, *quarter.layout, machine).seconds;
  if (a.link) {
    fmt::print("link: {:.3f} GB/s each way, the larger direction takes {:.3f} s\n", link / 1e9,
               larger_direction(plan) / link);
  }
  Setup resident(model, all, a, 0, 0);
  resident.trainer->step(data.batches(), 3e-4);
  Setup budget(model, std::move(quarter), a, link, link);
  budget.trainer->step(data.batches(), 3e-4);
  std::vector<double> ratios;
  for (int tries = 0; static_cast<int>(ratios.size()) < a.rounds && tries < 3 * a.rounds; ++tries) {
    run_round(resident, budget, data, ratios);
  }
  const uint64_t hash = resident.trainer->state_hash();
  if (budget.trainer->state_hash() != hash) {
    fmt::print("WRONG: the states differ after the same steps\n");
    return 1;
  }
  fmt::print("losses, norms and state are the same bits: {:016x}\n", hash);
  if (ratios.empty()) {
    fmt::print("no quiet round: others use the cores\n");
    return 1;
  }
  // What ran at once on the same cores took, alone, half of that time each.
  const double shared_s = median_of(resident.steps, &StepResult::overlap_s) / 2;
  const double compute_s = median_of(resident.steps, &StepResult::compute_s) - shared_s;
  const double update_s = median_of(resident.steps, &StepResult::update_s) - shared_s;
  const Machine found{
      .flops_per_s = all.flops / compute_s,
      .device_bytes_per_s = 0,
      .load_bytes_per_s = link,
      .store_bytes_per_s = link,
      .update_bytes_per_s = update_bytes_per_parameter(options.dtype, options.dtype) *
                            static_cast<double>(all.layout->num_space_elements()) /
                            std::max(update_s, 1e-9),
      .shared_cores = true,
      .copy_bytes_per_s = copy_bytes_per_s};
  const Bound bound = lower_bound(budget.prepared.trace, *budget.prepared.layout, plan, found,
                                  options.max_grad_norm > 0);
  const double step_s = median_of(budget.steps, &StepResult::step_s);
  fmt::print(
      "medians of {} rounds: resident {:.3f} s (compute {:.3f}, update {:.3f}), budget {:.3f} s\n",
      ratios.size(), median_of(resident.steps, &StepResult::step_s), compute_s, update_s, step_s);
  fmt::print("loaded {:.1f} MB, stored {:.1f} MB, stall {:.3f} s\n",
             static_cast<double>(plan.loaded_bytes) / 1e6,
             static_cast<double>(plan.stored_bytes) / 1e6,
             median_of(budget.steps, &StepResult::stall_s));
  fmt::print("time ratio budget / resident {:.3f}\n", median(ratios));
  fmt::print(
      "bound {:.3f} s by {}, achieved {:.3f} s, share {:.1f} %; predicted {:.3f} s ({:+.1f} %)\n",
      bound.seconds, bound.bound_by, step_s, 100 * bound.seconds / step_s, predicted_s,
      100 * (predicted_s / step_s - 1));
  return 0;
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  return ebb::bench::exit_code_of("bench_step",
                                  [&] { return ebb::bench::run(ebb::bench::parse(argc, argv)); });
}

// How much slower is training with a quarter of the device memory?
//
//   bench_step [--preset gpt2-bytes] [--rounds 5] [--threads N] [--chunk-mib 8] [--accumulate 4]
//              [--link] [--no-clip]
//
// One process has two trainers. In the first, everything is resident. The budget of the second has
// memory for the same activations and 25 % of the first trainer's memory for weights and gradients.
// A round is a step of each. Losses and norms must be equal to the bit after each step, and the
// states at the end. The program prints medians of the rounds: step times, their ratio, stall, the
// lower bound and the share of the bound, and the step time predicted from the machine's measured
// rates. --link: an emulated link, the fastest on which the larger direction takes half of
// compute's time, or more, in the plan that is chosen there.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "bench/exit_code.h"
#include "bench/gpt2_preset.h"
#include "bench/random_batches.h"
#include "bench/rounds.h"
#include "bench/tolerance.h"
#include "scheduler/plan/simulate.h"
#include "scheduler/run/trainer.h"
#include "system/cores.h"
#include "tools/machine_rates.h"

namespace ebb::bench {
namespace {

constexpr int64_t kBatch = 4, kLength = 256;

struct Arguments {
  std::string preset = "gpt2-bytes";
  size_t rounds = 5;
  int threads = num_usable_cores();
  size_t chunk_mib = 8;
  uint32_t accumulate = 4;
  bool link = false;
  bool no_clip = false;
};

/// A trainer with its plan and device.
struct Setup {
  Setup(const Model& model, Preparation p, const Arguments& a, double link_bytes_per_s)
      : prepared(std::move(p)),
        device(create_device({.profile = {.num_threads = a.threads},
                              .memory_bytes = prepared.ledger.total(Tier::Device),
                              .load_bytes_per_s = link_bytes_per_s,
                              .store_bytes_per_s = link_bytes_per_s})),
        trainer(model, *device, prepared) {}

  Preparation prepared;
  std::unique_ptr<Device> device;
  Trainer trainer;
};

struct Round {
  StepResult resident, budget;
};

uint32_t activation_blocks(const Preparation& p) {
  const size_t chunk_bytes = p.layout->chunk_bytes();
  return static_cast<uint32_t>((p.trace.arena_bytes + chunk_bytes - 1) / chunk_bytes);
}

/// The median of a few steps with everything resident.
double compute_seconds(const Gpt2& model, const Preparation& all, const Arguments& a,
                       const RandomBatches& data) {
  Setup resident(model, all, a, 0);
  resident.trainer.step(data.batches(), 3e-4);
  std::vector<double> seconds;
  for (int i = 0; i < 3; ++i) {
    seconds.push_back(resident.trainer.step(data.batches(), 3e-4).compute_s);
  }
  return median(seconds);
}

double larger_direction(const Plan& plan) {
  return static_cast<double>(std::max(plan.loaded_bytes, plan.stored_bytes));
}

/// Bytes a second, each way. Another link leads to another plan: on a link a little faster than
/// this, the plan that is chosen moves its larger direction in less than `seconds`.
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

Round run_round(Setup& resident, Setup& budget, const RandomBatches& data) {
  const StepResult a = resident.trainer.step(data.batches(), 3e-4);
  const StepResult b = budget.trainer.step(data.batches(), 3e-4);
  if (std::memcmp(&a.loss, &b.loss, 8) != 0 || std::memcmp(&a.grad_norm, &b.grad_norm, 8) != 0) {
    throw LogicError(fmt::format("WRONG: loss {:.17g} and {:.17g}, norm {:.17g} and {:.17g}",
                                 a.loss, b.loss, a.grad_norm, b.grad_norm));
  }
  return {a, b};
}

/// The machine's rates in these rounds, computed from the resident steps.
Machine machine_found(const Rounds<Round>& rounds, const Preparation& all, double link) {
  const auto median_of = [&](double StepResult::*member) {
    return rounds.median_of([&](const Round& r) { return r.resident.*member; });
  };
  // Two kinds of work that overlapped on the same cores would each need half of the overlap time
  // alone.
  const double shared_s = median_of(&StepResult::overlap_s) / 2;
  const double compute_s = median_of(&StepResult::compute_s) - shared_s;
  const double update_s = std::max(median_of(&StepResult::update_s) - shared_s, 1e-9);
  const double update_bytes = update_bytes_per_parameter(all.options.dtype, all.options.dtype) *
                              static_cast<double>(all.layout->num_space_elements());
  fmt::print("resident step: {:.3f} s; alone compute takes {:.3f} s, the update {:.3f} s\n",
             median_of(&StepResult::step_s), compute_s, update_s);
  return {.flops_per_s = all.flops / compute_s,
          .load_bytes_per_s = link,
          .store_bytes_per_s = link,
          .update_bytes_per_s = update_bytes / update_s,
          .shared_cores = true,
          .copy_bytes_per_s = rounds.rates().copy_bytes_per_s};
}

void print_budget(const Rounds<Round>& rounds, const Preparation& p, const Machine& found,
                  double predicted_s) {
  const auto median_of = [&](double StepResult::*member) {
    return rounds.median_of([&](const Round& r) { return r.budget.*member; });
  };
  const Bound bound = lower_bound(p.trace, *p.layout, p.plan, found, p.options.max_grad_norm > 0);
  const double step_s = median_of(&StepResult::step_s);
  fmt::print("step in the budget: {:.3f} s, stall {:.3f} s; loaded {:.1f} MB, stored {:.1f} MB\n",
             step_s, median_of(&StepResult::stall_s),
             static_cast<double>(p.plan.loaded_bytes) / 1e6,
             static_cast<double>(p.plan.stored_bytes) / 1e6);
  fmt::print("time ratio budget / resident {:.3f}\n",
             rounds.median_of([](const Round& r) { return r.budget.step_s / r.resident.step_s; }));
  const Tolerance tolerance = tolerance_of(p.layout->num_model_parameters(), false);
  fmt::print("bound {:.3f} s by {}, achieved {:.3f} s, share {:.1f} %; predicted {:.3f} s, {}\n",
             bound.seconds, bound.bound_by, step_s, 100 * bound.seconds / step_s, predicted_s,
             tolerance.text(predicted_s / step_s - 1));
}

/// A quarter of the blocks for weights and gradients, and all those for activations.
Budgets quarter_of(const Preparation& all, const Arguments& a) {
  const uint32_t activations = activation_blocks(all);
  const uint32_t quarter = activations + (all.full_blocks - activations) / 4;
  const uint32_t blocks = std::max(all.smallest_blocks, quarter);
  const size_t less = (all.full_blocks - blocks) * all.layout->chunk_bytes();
  return {.device_memory = all.full_device_bytes - less, .device = {.num_threads = a.threads}};
}

void print_case(const Preparation& all, const Preparation& quarter, const Arguments& a) {
  const uint32_t activations = activation_blocks(all);
  fmt::print("{}: {:.1f} M parameters, {} tokens a step, chunks of {} MiB\n", a.preset,
             static_cast<double>(all.layout->num_model_parameters()) / 1e6,
             a.accumulate * kBatch * kLength, a.chunk_mib);
  fmt::print(
      "resident: {} blocks; budget: {} blocks, {} for activations and {:.0f} % of the rest; "
      "smallest {}\n",
      all.num_blocks, quarter.num_blocks, activations,
      100.0 * (quarter.num_blocks - activations) / (all.full_blocks - activations),
      all.smallest_blocks);
  fmt::print("{} micro-batches, {} order, activations {}, {}\n", a.accumulate,
             name_of(quarter.schedule.micro_batch_order),
             quarter.schedule.activations == ActivationPlacement::Offload ? "may leave" : "stay",
             a.no_clip ? "not clipped" : "clipped");
}

/// Sets the machine's link, and returns the preparation for it.
template <class Prepare>
Preparation prepare_for_link(Machine& machine, double half_s, const Prepare& prepare_now) {
  const auto prepare_on = [&](double rate) {
    machine.load_bytes_per_s = machine.store_bytes_per_s = rate;
    return prepare_now();
  };
  Preparation p =
      prepare_on(fastest_link(half_s, larger_direction(prepare_now().plan), prepare_on));
  const double direction_s = larger_direction(p.plan) / machine.load_bytes_per_s;
  if (direction_s < half_s) {
    throw ConfigError("on no link tried does the larger direction take half of compute's time");
  }
  fmt::print("link: {:.3f} GB/s each way, the larger direction takes {:.3f} s\n",
             machine.load_bytes_per_s / 1e9, direction_s);
  return p;
}

int run(const Arguments& a) {
  const Gpt2 model(find_gpt2_preset(a.preset), kBatch, kLength, DType::BF16);
  const TrainerOptions options{.dtype = DType::BF16,
                               .chunk_bytes = a.chunk_mib << 20,
                               .gradient_accumulation = a.accumulate,
                               .schedule = {.recompute = kRecomputeNone},
                               .max_grad_norm = a.no_clip ? 0.0f : 1.0f};
  const RandomBatches data(model.config().vocabulary, kBatch, kLength, a.accumulate);
  const Preparation all = prepare(model, options, {.device = {.num_threads = a.threads}});
  Machine machine =
      machine_rates({.profile = {.num_threads = a.threads}}, options.dtype, options.dtype, {})
          .machine;
  const auto prepare_now = [&] { return prepare(model, options, quarter_of(all, a), machine); };
  Preparation quarter =
      a.link ? prepare_for_link(machine, compute_seconds(model, all, a, data) / 2, prepare_now)
             : prepare_now();
  print_case(all, quarter, a);
  const double predicted_s =
      simulate(quarter.plan, quarter.trace, *quarter.layout, machine).seconds;
  const double link = a.link ? machine.load_bytes_per_s : 0;
  Setup resident(model, all, a, 0);
  Setup budget(model, std::move(quarter), a, link);
  run_round(resident, budget, data);
  CoreRatesMeter meter(a.threads);
  const Rounds<Round> rounds(meter, a.rounds, [&] { return run_round(resident, budget, data); });
  const uint64_t hash = resident.trainer.state_hash();
  if (budget.trainer.state_hash() != hash) throw LogicError("WRONG: the states differ");
  fmt::print("losses, norms and state are the same bits: {:016x}\n", hash);
  fmt::print("{}\n", rounds.text());
  print_budget(rounds, budget.prepared, machine_found(rounds, all, link), predicted_s);
  return 0;
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  ebb::bench::Arguments a;
  CLI::App app("What does it cost to train with a quarter of the device memory?");
  app.option_defaults()->always_capture_default();
  app.add_option("--preset", a.preset, "a GPT-2 or GPT-3");
  app.add_option("--rounds", a.rounds, "how many rounds count");
  app.add_option("--threads", a.threads, "threads of kernels and updates");
  app.add_option("--chunk-mib", a.chunk_mib, "chunk size in MiB");
  app.add_option("--accumulate", a.accumulate, "micro-batches a step");
  app.add_flag("--link", a.link, "emulate a link");
  app.add_flag("--no-clip", a.no_clip, "do not clip gradients");
  CLI11_PARSE(app, argc, argv);
  return ebb::bench::exit_code_of("bench_step", [&] { return ebb::bench::run(a); });
}

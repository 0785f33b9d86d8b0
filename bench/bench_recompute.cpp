// How much faster is training if only some values of each layer are recomputed, not whole layers?
//
//   bench_recompute [--preset gpt2-bytes] [--layers 6] [--batch 4] [--length 256] [--rounds 5]
//                   [--threads N] [--chunk-mib 8]
//
// One process has two trainers with the same device budget: one byte less than the smallest in
// which the first --layers - 1 layers are recomputed as a whole. So the first trainer recomputes
// the first --layers layers as a whole. For the second one the planner chooses what each layer
// recomputes. Activations stay on the device. A round is a step of each; one round is run before
// those that count. Losses and norms must be equal to the bit after each step, and the states at
// the end; a difference is an error. The program prints medians of the rounds: step times, the
// ratio of the two speeds, and the largest ratio that the arithmetic allows ("bound"): that of a
// step of the first trainer over that of a step that recomputes nothing. The goal is 1.05 x for
// half of the layers.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/exit_code.h"
#include "bench/gpt2_preset.h"
#include "bench/random_batches.h"
#include "bench/rounds.h"
#include "bench/tolerance.h"
#include "scheduler/run/trainer.h"
#include "system/cores.h"
#include "tools/machine_rates.h"

namespace ebb::bench {
namespace {

struct Arguments {
  std::string preset = "gpt2-bytes";
  uint32_t layers = 6;
  int64_t batch = 4, length = 256;
  size_t rounds = 5;
  int threads = num_usable_cores();
  size_t chunk_mib = 8;
};

/// A trainer with its plan and device.
struct Setup {
  Setup(const Model& model, Preparation p, int threads)
      : prepared(std::move(p)),
        device(create_device({.profile = {.num_threads = threads},
                              .memory_bytes = prepared.ledger.total(Tier::Device)})),
        trainer(model, *device, prepared) {}

  Preparation prepared;
  std::unique_ptr<Device> device;
  Trainer trainer;
};

struct Round {
  StepResult whole, chosen;
};

/// The first `count` of all layers are recomputed as a whole: they would keep their values longest.
Recompute whole_layers(uint32_t count, uint32_t num_layers) {
  Recompute recompute{.groups = std::vector<ValueGroups>(num_layers, kKeepAll)};
  std::fill_n(recompute.groups.begin(), count, kWholeLayer);
  return recompute;
}

TrainerOptions options_of(std::optional<RecomputeRequest> recompute, const Arguments& a) {
  return {
      .dtype = DType::BF16,
      .chunk_bytes = a.chunk_mib << 20,
      .schedule = {.recompute = std::move(recompute), .activations = ActivationPlacement::Device}};
}

Round run_round(Setup& whole, Setup& chosen, const RandomBatches& data) {
  const StepResult a = whole.trainer.step(data.batches(), 3e-4);
  const StepResult b = chosen.trainer.step(data.batches(), 3e-4);
  if (std::memcmp(&a.loss, &b.loss, 8) != 0 || std::memcmp(&a.grad_norm, &b.grad_norm, 8) != 0) {
    throw LogicError(fmt::format("WRONG: loss {:.17g} and {:.17g}, norm {:.17g} and {:.17g}",
                                 a.loss, b.loss, a.grad_norm, b.grad_norm));
  }
  return {a, b};
}

void print(const char* name, const Setup& setup, const Rounds<Round>& rounds,
           StepResult Round::*member) {
  const Preparation& p = setup.prepared;
  const Candidate& candidate = p.candidates[p.chosen];
  const auto median_of = [&](double StepResult::*value) {
    return rounds.median_of([&](const Round& r) { return (r.*member).*value; });
  };
  const double step_s = median_of(&StepResult::step_s);
  fmt::print("{}: recompute {}; {:.3f} TFLOP, {} blocks, moves {:.0f} MB\n", name,
             name_of(p.schedule.recompute, p.num_layers), p.flops / 1e12, p.num_blocks,
             static_cast<double>(candidate.moved_bytes) / 1e6);
  fmt::print(
      "  step {:.3f} s, stall {:.3f} s, update {:.3f} s; predicted {:.3f} s, {}\n", step_s,
      median_of(&StepResult::stall_s), median_of(&StepResult::update_s), candidate.seconds,
      tolerance_of(p.layout->num_model_parameters(), false).text(candidate.seconds / step_s - 1));
}

int run(const Arguments& a) {
  const Gpt2 model(find_gpt2_preset(a.preset), a.batch, a.length, DType::BF16);
  const uint32_t num_layers = model.num_layers();
  if (a.layers == 0 || a.layers > num_layers) {
    throw ConfigError(fmt::format("--layers {}: allowed are 1 to {}", a.layers, num_layers));
  }
  const Machine machine =
      machine_rates({.profile = {.num_threads = a.threads}}, DType::BF16, DType::BF16, {}).machine;
  Budgets budgets{.device = {.num_threads = a.threads}};
  const auto prepare_now = [&](std::optional<RecomputeRequest> recompute) {
    return prepare(model, options_of(std::move(recompute), a), budgets, machine);
  };
  const Preparation none = prepare_now(kRecomputeNone);
  const size_t enough_for_fewer =
      prepare_now(whole_layers(a.layers - 1, num_layers)).smallest_device_bytes;
  budgets.device_memory = enough_for_fewer - 1;
  Setup whole(model, prepare_now(whole_layers(a.layers, num_layers)), a.threads);
  Setup chosen(model, prepare_now(std::nullopt), a.threads);
  const RandomBatches data(model.config().vocabulary, a.batch, a.length, 1);
  run_round(whole, chosen, data);
  CoreRatesMeter meter(a.threads);
  const Rounds<Round> rounds(meter, a.rounds, [&] { return run_round(whole, chosen, data); });
  const uint64_t hash = whole.trainer.state_hash();
  if (chosen.trainer.state_hash() != hash) throw LogicError("WRONG: the states differ");
  fmt::print("{}: {:.1f} M parameters, {}x{} tokens a step, {:.1f} MiB of device memory\n",
             a.preset, static_cast<double>(none.layout->num_model_parameters()) / 1e6, a.batch,
             a.length, static_cast<double>(*budgets.device_memory) / (1 << 20));
  fmt::print("losses, norms and state are the same bits: {:016x}\n{}\n", hash, rounds.text());
  print("whole layers", whole, rounds, &Round::whole);
  print("chosen", chosen, rounds, &Round::chosen);
  const double bound = whole.prepared.flops / none.flops;
  const double achieved =
      rounds.median_of([](const Round& r) { return r.whole.step_s / r.chosen.step_s; });
  fmt::print("tokens/s, chosen / whole layers: bound {:.3f}, achieved {:.3f}, share {:.1f} %\n",
             bound, achieved, 100 * achieved / bound);
  return 0;
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  ebb::bench::Arguments a;
  CLI::App app("How much faster is it to recompute some values of each layer, not whole layers?");
  app.option_defaults()->always_capture_default();
  app.add_option("--preset", a.preset, "a GPT-2 or GPT-3");
  app.add_option("--layers", a.layers, "so many layers have to be recomputed as a whole");
  app.add_option("--batch", a.batch, "sequences a step");
  app.add_option("--length", a.length, "tokens of a sequence");
  app.add_option("--rounds", a.rounds, "how many rounds count");
  app.add_option("--threads", a.threads, "threads of kernels and updates");
  app.add_option("--chunk-mib", a.chunk_mib, "chunk size in MiB");
  CLI11_PARSE(app, argc, argv);
  return ebb::bench::exit_code_of("bench_recompute", [&] { return ebb::bench::run(a); });
}

// Which share of the processor's peak does a training step reach?
//
//   bench_train [--rounds 5] [--threads N]
//
// GPT-2 124M and 6 x 384, 4 sequences of 64 tokens a step, everything resident, AdamW and clipping
// included, in fp32 and in bf16 with each arithmetic that runs here. A round is as many multiply-
// adds or dot products on registers as a step has (the bound), a step, and a step of a second model
// whose embedding was drawn 50 times too wide, so that most of its probabilities and their
// gradients fall below the smallest normal number. A line has the medians of the rounds; share is
// achieved / bound, and the last column is the time of the second step over that of the first. A
// loss that is not a number ends the program with 1.
#include <CLI/CLI.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "bench/exit_code.h"
#include "bench/gpt2_preset.h"
#include "bench/peak.h"
#include "bench/random_batches.h"
#include "bench/rounds.h"
#include "scheduler/run/trainer.h"
#include "system/cores.h"

namespace ebb::bench {
namespace {

constexpr int64_t kBatch = 4, kLength = 64;
constexpr double kTooWide = 50;

struct Arguments {
  size_t rounds = 5;
  int threads = num_usable_cores();
};

/// A model and its trainer, which runs one step after the other.
class Training {
 public:
  Training(const Gpt2& model, DType dtype, Arithmetic arithmetic, int num_threads)
      : batches_(model.config().vocabulary, kBatch, kLength, 1),
        prepared_(prepare(model, {.dtype = dtype}, {.device = {.num_threads = num_threads}})),
        device_(create_device({.profile = {.num_threads = num_threads},
                               .memory_bytes = prepared_.ledger.total(Tier::Device),
                               .arithmetic = arithmetic})),
        trainer_(model, *device_, prepared_) {}

  /// The mean time of a step in seconds, over several steps if they are short.
  double step() {
    const double start_s = steady_now_s();
    int num_steps = 0;
    do {
      const StepResult result = trainer_.step(batches_.batches(), 3e-5);
      if (!std::isfinite(result.loss)) throw NumericError("the loss is not a number");
      ++num_steps;
    } while (steady_now_s() - start_s < 0.5);
    return (steady_now_s() - start_s) / num_steps;
  }

  void widen(std::string_view parameter) {
    std::vector<float> values = trainer_.read_parameter(parameter);
    for (float& v : values) v *= static_cast<float>(kTooWide);
    trainer_.write_parameter(parameter, values);
  }

 private:
  RandomBatches batches_;
  Preparation prepared_;
  std::unique_ptr<Device> device_;
  Trainer trainer_;
};

/// Seconds of each part.
struct Round {
  double peak_s, normal_s, wide_s;
};

void compare(const char* preset, DType dtype, Arithmetic arithmetic, const Arguments& a,
             CoreRatesMeter& meter) {
  const Gpt2 model(find_gpt2_preset(preset), kBatch, kLength, dtype);
  Training normal(model, dtype, arithmetic, a.threads);
  Training wide(model, dtype, arithmetic, a.threads);
  wide.widen("wte.weight");
  normal.step();
  wide.step();
  ThreadTeam team(a.threads);
  const double tokens = kBatch * kLength;
  const double flops = training_flops(model.config(), kBatch * kLength, kLength);
  const double flops_of_a_turn = run_at_peak(team, arithmetic, 1);
  const auto peak = [&] {
    const double start_s = steady_now_s();
    run_at_peak(team, arithmetic, static_cast<int64_t>(flops / flops_of_a_turn));
    return steady_now_s() - start_s;
  };
  const Rounds<Round> rounds(meter, a.rounds, [&] {
    return Round{peak(), normal.step(), wide.step()};
  });
  const double step_s = rounds.median_of(&Round::normal_s);
  fmt::print("{:<10} {:<5} {:<9} {:>6.0f} {:>9.0f} {:>8.1f} {:>9.1f} {:>8.0f} {:>10.3f}  {}\n",
             preset, name_of(dtype), dtype == DType::F32 ? "" : name_of(arithmetic),
             1e-9 * flops / rounds.median_of(&Round::peak_s), 1e-9 * flops / step_s,
             100 * rounds.median_of([](const Round& r) { return r.peak_s / r.normal_s; }),
             1e3 * step_s, tokens / step_s,
             rounds.median_of([](const Round& r) { return r.wide_s / r.normal_s; }), rounds.text());
  std::fflush(stdout);
}

int run(const Arguments& a) {
  CoreRatesMeter meter(a.threads);
  fmt::print("GFLOP/s with {} threads, {} tokens a step\n", a.threads, kBatch * kLength);
  fmt::print("{:<10} {:<5} {:<9} {:>6} {:>9} {:>8} {:>9} {:>8} {:>10}\n", "model", "type",
             "arithmetic", "bound", "achieved", "share %", "ms/step", "tokens/s", "denormal x");
  for (const char* preset : {"gpt2", "gpt-6x384"}) {
    compare(preset, DType::F32, Arithmetic::Fp32, a, meter);
    compare(preset, DType::BF16, Arithmetic::Fp32, a, meter);
    if (this_processor().has_bf16_dot) {
      compare(preset, DType::BF16, Arithmetic::Bf16Dot, a, meter);
    }
  }
  return 0;
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  ebb::bench::Arguments a;
  CLI::App app("How much of the processor's peak reaches a training step?");
  app.add_option("--rounds", a.rounds, "how many rounds count")->capture_default_str();
  app.add_option("--threads", a.threads, "threads of kernels and updates")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return ebb::bench::exit_code_of("bench_train", [&] { return ebb::bench::run(a); });
}

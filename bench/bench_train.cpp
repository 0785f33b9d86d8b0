// How much of the processor's peak reaches a training step?
//
//   bench_train [threads = one per core]
//
// GPT-2 124M and 6 x 384, 4 sequences of 64 tokens a step, everything resident, AdamW and clipping
// included, in fp32 and in bf16 with each arithmetic that runs here. The peak (multiply-adds, or
// dot products, on registers) and the steps are measured in turn in one process; medians. The last
// column is the time of a step whose embedding was drawn 50 times too wide, so that most
// probabilities and their gradients fall below the smallest normal number, against a normal step.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "bench/exit_code.h"
#include "bench/gpt2_preset.h"
#include "bench/peak.h"
#include "bench/random_batches.h"
#include "bench/rounds.h"
#include "scheduler/run/trainer.h"
#include "system/cores.h"
#include "system/thread_team.h"

namespace ebb::bench {
namespace {

constexpr int64_t kBatch = 4, kLength = 64;
constexpr double kTooWide = 50;

/// A model with a trainer of its own that takes one step after the other.
class Training {
 public:
  Training(const Gpt2& model, DType dtype, Arithmetic arithmetic, int num_threads)
      : batches_(model.config().vocabulary, kBatch, kLength, 1),
        prepared_(prepare(model, {.dtype = dtype}, {.num_threads = num_threads})),
        device_(create_device({.memory_bytes = prepared_.ledger.total(Tier::Device),
                               .num_threads = num_threads,
                               .arithmetic = arithmetic})),
        trainer_(model, *device_, prepared_) {}

  void step() { trainer_.step(batches_.batches(), 3e-5); }

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

void compare(const char* preset, DType dtype, Arithmetic arithmetic, int num_threads) {
  const Gpt2 model(find_gpt2_preset(preset), kBatch, kLength, dtype);
  Training normal(model, dtype, arithmetic, num_threads);
  Training wide(model, dtype, arithmetic, num_threads);
  wide.widen("wte.weight");
  ThreadTeam team(num_threads);
  constexpr int64_t kPeakRounds = 2'000'000;
  const double peak_flops = run_at_peak(team, arithmetic, kPeakRounds);
  normal.step();
  wide.step();
  const Sample samples[] = {
      [&] { return seconds_of([&] { run_at_peak(team, arithmetic, kPeakRounds); }); },
      [&] { return seconds_of([&] { normal.step(); }, 1.0); },
      [&] { return seconds_of([&] { wide.step(); }, 1.0); },
  };
  const Rounds rounds = measure_rounds(samples, 5);
  const double tokens = kBatch * kLength;
  const double flops = training_flops(model.config(), kBatch * kLength, kLength);
  const double peak = peak_flops / rounds.median(0), achieved = flops / rounds.median(1);
  fmt::print("{:<12} {:<5} {:<9} {:>6.0f} {:>9.0f} {:>8.1f} {:>9.1f} {:>8.0f} {:>10.3f}  {}\n",
             preset, name_of(dtype), dtype == DType::F32 ? "" : name_of(arithmetic), peak / 1e9,
             achieved / 1e9, 100 * achieved / peak, 1e3 * rounds.median(1),
             tokens / rounds.median(1), rounds.ratio(2, 1), rounds.quiet ? "" : "LOUD");
  std::fflush(stdout);
}

void run(int num_threads) {
  fmt::print("GFLOP/s with {} threads, {} tokens a step\n", num_threads, kBatch * kLength);
  fmt::print("{:<12} {:<5} {:<9} {:>6} {:>9} {:>8} {:>9} {:>8} {:>10}\n", "model", "type",
             "arithmetic", "peak", "achieved", "share %", "ms/step", "tokens/s", "denormal x");
  for (const char* preset : {"gpt2", "gpt-6x384"}) {
    compare(preset, DType::F32, Arithmetic::Fp32, num_threads);
    compare(preset, DType::BF16, Arithmetic::Fp32, num_threads);
    if (this_processor().has_bf16_dot) {
      compare(preset, DType::BF16, Arithmetic::Bf16Dot, num_threads);
    }
  }
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  return ebb::bench::exit_code_of("bench_train", [&] {
    ebb::bench::run(argc > 1 ? std::stoi(argv[1]) : ebb::num_usable_cores());
    return 0;
  });
}

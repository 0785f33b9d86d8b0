// How much time does a step gain if updates do not wait for the norm, and how much does it lose if
// clipping makes them wrong?
//
//   bench_speculation [--clipped] [--rounds 60] [--update 1.8] [--threads N] [--chunks N]
//                     [--layers 32] [--channels 1024] [--chunk-mib 8]
//
// Emulated steps of a GPT of 400 M parameters (15 GiB): kernels sleep; copies, over an emulated
// link, and the CPU Adam are real. Rates are chosen so that the update takes --update times as long
// as the forward, and loads half of it; how long the update took in the steps of `overlap` is
// printed. A round is a step with overlapped updates and one with speculative updates.
//
// Without --clipped, clipping changes no gradient, and the program prints both times and the bound
// of a step without clipping. With --clipped, the gradient that is stored last clips every step, so
// that all speculative updates are wrong; then compare the mean steps of all rounds. --chunks: the
// number of chunks with speculative updates; otherwise the planner chooses.
#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "bench/exit_code.h"
#include "bench/forwarding_device.h"
#include "bench/random_batches.h"
#include "bench/rounds.h"
#include "bench/tolerance.h"
#include "model_zoo/gpt2.h"
#include "scheduler/run/trainer.h"
#include "system/cores.h"

namespace ebb::bench {
namespace {

constexpr int64_t kBatch = 1, kLength = 32;
constexpr int kWarmUps = 3;

struct Arguments {
  bool clipped = false;
  size_t rounds = 60;
  double update = 1.8;
  int threads = num_usable_cores();
  std::optional<uint32_t> chunks = {};
  Gpt2Config gpt = {.vocabulary = 256, .channels = 1024, .num_layers = 32, .num_heads = 8};
  size_t chunk_mib = 8;
};

/// A device that sets the partial norms. No kernel of an emulated step writes them, so they keep
/// their first values. The first piece belongs to the chunk whose gradient is stored last.
class LateNorm : public ForwardingDevice {
 public:
  LateNorm(std::unique_ptr<Device> device, double norm)
      : ForwardingDevice(std::move(device)), norm_(norm) {}
  Buffer allocate(MemoryKind kind, size_t bytes, std::string_view tag) override {
    Buffer buffer = ForwardingDevice::allocate(kind, bytes, tag);
    if (kind == MemoryKind::Device && tag == "partial norms") {
      *reinterpret_cast<double*>(buffer.data()) = norm_ * norm_;
    }
    return buffer;
  }

 private:
  double norm_;
};

TrainerOptions options_of(UpdateOrder update, bool clips, const Arguments& a) {
  TrainerOptions options{
      .dtype = DType::BF16,
      .chunk_bytes = a.chunk_mib << 20,
      .schedule = {.recompute = kRecomputeNone, .update = update, .device_updates = 0},
      .max_grad_norm = clips ? 1.0f : 0.0f};
  if (update == UpdateOrder::Speculate) options.schedule.speculated_chunks = a.chunks;
  return options;
}

/// Rates with which the forward, a third of the arithmetic, takes the time of the update /
/// --update.
Machine machine_of(const Preparation& p, const CoreRates& cores, const Arguments& a) {
  Machine machine{.update_bytes_per_s = cores.update_bytes_per_s,
                  .shared_cores = true,
                  .emulate_compute = true,
                  .copy_bytes_per_s = cores.copy_bytes_per_s};
  const Bound bound = lower_bound(p.trace, *p.layout, p.plan, machine, false);
  const double forward_s = bound.update_s / a.update;
  machine.flops_per_s = p.flops / (3 * forward_s);
  machine.load_bytes_per_s = machine.store_bytes_per_s =
      static_cast<double>(p.plan.loaded_bytes) / (forward_s / 2);
  return machine;
}

/// A trainer with its plan and device.
struct Setup {
  Setup(const Gpt2& model, UpdateOrder update, const Machine& machine, const Arguments& a)
      : prepared(prepare(model, options_of(update, true, a), {.device = {.num_threads = a.threads}},
                         machine)),
        device(create_device({.profile = {.num_threads = a.threads},
                              .memory_bytes = prepared.ledger.total(Tier::Device),
                              .load_bytes_per_s = machine.load_bytes_per_s,
                              .store_bytes_per_s = machine.store_bytes_per_s,
                              .emulate_compute = ComputeRates{.flops_per_s = machine.flops_per_s}}),
               a.clipped ? 2 : 0.5),
        trainer(model, device, prepared) {}

  Preparation prepared;
  LateNorm device;
  Trainer trainer;
};

struct Round {
  StepResult overlap, speculate;
};

void print(const char* name, const Setup& setup, const Rounds<Round>& rounds,
           StepResult Round::*member, double bound_s, const Machine& now, bool clipped) {
  double sum_s = 0;
  uint64_t speculated_chunks = 0, num_rolled_back = 0;
  for (const Round& round : rounds.results()) {
    const StepResult& step = round.*member;
    sum_s += step.step_s;
    speculated_chunks += step.speculated_chunks;
    num_rolled_back += step.rolled_back_chunks;
  }
  if (num_rolled_back != (clipped ? speculated_chunks : 0)) {
    throw LogicError(fmt::format("WRONG: {} of {} speculative updates were rolled back",
                                 num_rolled_back, speculated_chunks));
  }
  const double median_s = rounds.median_of([&](const Round& r) { return (r.*member).step_s; });
  const Preparation& p = setup.prepared;
  const double off = simulate(p.plan, p.trace, *p.layout, now).seconds / median_s - 1;
  fmt::print(
      "{:<10} {:>9.4f} {:>9.4f} {:>9.4f} {:>9.3f} {:>6.1f} {:>9.4f} {:>8} {:>10} {:>7}  {}\n", name,
      bound_s, median_s, sum_s / static_cast<double>(rounds.results().size()), median_s / bound_s,
      100 * bound_s / median_s,
      rounds.median_of([&](const Round& r) { return (r.*member).update_s; }),
      p.plan.count(&ChunkRecord::is_speculative), speculated_chunks, num_rolled_back,
      clipped ? "none of clipped steps"
              : tolerance_of(p.layout->num_model_parameters(), true).text(off));
}

int run(const Arguments& a) {
  const Gpt2 model(a.gpt, kBatch, kLength, DType::BF16);
  CoreRatesMeter meter(a.threads);
  const CoreRates cores = meter.measure();
  const Preparation plain = prepare(model, options_of(UpdateOrder::Overlap, true, a),
                                    {.device = {.num_threads = a.threads}});
  const Machine machine = machine_of(plain, cores, a);
  Setup overlap(model, UpdateOrder::Overlap, machine, a);
  Setup speculate(model, UpdateOrder::Speculate, machine, a);
  const RandomBatches data(a.gpt.vocabulary, kBatch, kLength, 1);
  const auto run_round = [&] {
    return Round{overlap.trainer.step(data.batches(), 3e-4),
                 speculate.trainer.step(data.batches(), 3e-4)};
  };
  // If every step is clipped, the first steps count, because they have the most speculative
  // updates.
  for (int i = 0; i < (a.clipped ? 0 : kWarmUps); ++i) run_round();
  const Rounds<Round> rounds(meter, a.rounds, run_round);
  const CoreRates beside = rounds.rates();
  Machine now = machine;
  now.update_bytes_per_s = beside.update_bytes_per_s;
  now.copy_bytes_per_s = beside.copy_bytes_per_s;
  const Preparation without = prepare(model, options_of(UpdateOrder::Overlap, false, a),
                                      {.device = {.num_threads = a.threads}}, now);
  const Bound bound = lower_bound(without.trace, *without.layout, without.plan, now, false);
  fmt::print(
      "GPT of {:.1f} M parameters in {} chunks; Adam {:.1f}, in the steps {:.1f} GB/s, copies "
      "{:.1f} GB/s, {} threads; kernels {:.3f} TFLOP/s, link {:.2f} GB/s each way\n",
      static_cast<double>(plain.layout->num_model_parameters()) / 1e6, plain.layout->num_chunks(),
      cores.update_bytes_per_s / 1e9, beside.update_bytes_per_s / 1e9,
      beside.copy_bytes_per_s / 1e9, a.threads, machine.flops_per_s / 1e12,
      machine.load_bytes_per_s / 1e9);
  const double forward_s = plain.flops / machine.flops_per_s / 3;
  fmt::print(
      "{}, {}; bound without clipping by {}; the update of overlap took {:.2f} x the forward\n",
      rounds.text(), a.clipped ? "all steps clipped" : "no step clipped", bound.bound_by,
      rounds.median_of([](const Round& r) { return r.overlap.update_s; }) / forward_s);
  fmt::print("{:<10} {:>9} {:>9} {:>9} {:>9} {:>6} {:>9} {:>8} {:>10} {:>7}  {}\n", "", "bound s",
             "achieved", "mean s", "x bound", "share", "update s", "planned", "speculated",
             "undone", "prediction");
  print("overlap", overlap, rounds, &Round::overlap, bound.seconds, now, a.clipped);
  print("speculate", speculate, rounds, &Round::speculate, bound.seconds, now, a.clipped);
  return 0;
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  ebb::bench::Arguments a;
  CLI::App app("What do speculative updates gain, and lose where clipping makes them wrong?");
  app.option_defaults()->always_capture_default();
  app.add_flag("--clipped", a.clipped, "clip every step");
  app.add_option("--rounds", a.rounds, "how many rounds count");
  app.add_option("--update", a.update, "the update's time over that of the forward");
  app.add_option("--threads", a.threads, "threads of updates and copies");
  app.add_option("--chunks", a.chunks, "chunks to update speculatively");
  app.add_option("--layers", a.gpt.num_layers, "layers of the GPT");
  app.add_option("--channels", a.gpt.channels, "channels of the GPT");
  app.add_option("--chunk-mib", a.chunk_mib, "chunk size in MiB");
  CLI11_PARSE(app, argc, argv);
  return ebb::bench::exit_code_of("bench_speculation", [&] { return ebb::bench::run(a); });
}

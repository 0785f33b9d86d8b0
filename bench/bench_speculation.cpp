// What does a step gain that updates in the hope that clipping will not bite, and lose where it
// does?
//
//   bench_speculation [--clipped] [--steps 60] [--update 1.8] [--threads N] [--chunks N]
//                     [--layers 32] [--channels 1024] [--chunk-mib 8]
//
// A rehearsal of a GPT of 400 M parameters (15 GiB): kernels sleep; copies, over an emulated link,
// and the CPU Adam are real. Rates are chosen so that the update takes --update times as long as
// the forward, and loads half of it; how long it took in the steps of `overlap` is printed. Without
// --clipped clipping never bites: a step that overlaps, and one that speculates, beside the bound
// of a step without clipping. With it every step is clipped by the gradient that comes home last,
// so that all that was made in hope is wrong: the mean step beside that of `overlap`. --chunks: how
// many are speculated on; otherwise the planner chooses.
//
// The two take turns. Medians and the bound are of turns beside which the cores stayed as fast as
// rates were chosen for (steady_turns.h; `steady`), of all where none was; means are of all.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <string>

#include "bench/exit_code.h"
#include "bench/random_batches.h"
#include "bench/steady_turns.h"
#include "model_zoo/gpt2.h"
#include "scheduler/run/trainer.h"
#include "system/cores.h"

namespace ebb::bench {
namespace {

constexpr int64_t kBatch = 1, kLength = 32;
constexpr int kWarmUps = 3;

struct Arguments {
  bool clipped = false;
  int steps = 60;
  double update = 1.8;
  int threads = num_usable_cores();
  std::optional<uint32_t> chunks = {};
  Gpt2Config gpt = {.vocabulary = 256, .channels = 1024, .num_layers = 32, .num_heads = 8};
  size_t chunk_mib = 8;
};

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--clipped") {
      a.clipped = true;
      continue;
    }
    const char* const value = i + 1 < argc ? argv[++i] : "0";
    if (flag == "--steps") {
      a.steps = std::atoi(value);
    } else if (flag == "--update") {
      a.update = std::atof(value);
    } else if (flag == "--threads") {
      a.threads = std::atoi(value);
    } else if (flag == "--chunks") {
      a.chunks = static_cast<uint32_t>(std::atoi(value));
    } else if (flag == "--layers") {
      a.gpt.num_layers = std::atoi(value);
    } else if (flag == "--channels") {
      a.gpt.channels = std::atoi(value);
    } else if (flag == "--chunk-mib") {
      a.chunk_mib = static_cast<size_t>(std::atoi(value));
    } else {
      throw ConfigError("no flag " + flag +
                        "; there are --clipped, --steps, --update, --threads, --chunks, --layers, "
                        "--channels, --chunk-mib");
    }
  }
  return a;
}

/// A device whose gradients have a norm: no kernel of a rehearsal writes partial norms, so they
/// stay what they are when they are made. That of the first piece is of what comes home last.
class LateNorm : public Device {
 public:
  LateNorm(std::unique_ptr<Device> device, double norm) : device_(std::move(device)), norm_(norm) {}
  const DeviceInfo& info() const override { return device_->info(); }
  Buffer allocate(MemoryKind kind, size_t bytes, std::string_view tag) override {
    Buffer buffer = device_->allocate(kind, bytes, tag);
    if (kind == MemoryKind::Device && tag == "partial norms") {
      *reinterpret_cast<double*>(buffer.data()) = norm_ * norm_;
    }
    return buffer;
  }
  std::unique_ptr<Blocks> create_blocks(size_t block_bytes, uint32_t num_blocks) override {
    return device_->create_blocks(block_bytes, num_blocks);
  }
  void reserve_workspace(size_t bytes) override { device_->reserve_workspace(bytes); }
  std::unique_ptr<Stream> create_stream(StreamKind role) override {
    return device_->create_stream(role);
  }
  std::unique_ptr<Event> create_event() override { return device_->create_event(); }
  Kernels& kernels() override { return device_->kernels(); }
  size_t used_bytes() const override { return device_->used_bytes(); }
  size_t peak_bytes() const override { return device_->peak_bytes(); }
  uint64_t num_allocations() const override { return device_->num_allocations(); }
  double now_s() const override { return device_->now_s(); }

 private:
  void free(MemoryKind, std::byte*, size_t) noexcept override {}  // buffers are the other's
  std::unique_ptr<Device> device_;
  double norm_;
};

TrainerOptions options_of(UpdateOrder update, bool clips, const Arguments& a) {
  TrainerOptions options{.dtype = DType::BF16,
                         .chunk_bytes = a.chunk_mib << 20,
                         .recompute = Recompute::None,
                         .update = update,
                         .device_updates = 0,
                         .max_grad_norm = clips ? 1.0f : 0.0f};
  if (update == UpdateOrder::Speculate) options.speculated_chunks = a.chunks;
  return options;
}

/// Rates at which the forward, a third of the arithmetic, takes the update's time / --update.
Machine machine_of(const Preparation& p, const Cores& cores, const Arguments& a) {
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

/// A trainer with its plan and device, and what its steps took.
struct Runner {
  Runner(const Gpt2& model, UpdateOrder update, const Machine& machine, const Arguments& a)
      : name(update == UpdateOrder::Overlap ? "overlap" : "speculate"),
        prepared(prepare(model, options_of(update, true, a), {.num_threads = a.threads}, machine)),
        device(create_device({.memory_bytes = prepared.ledger.total(Tier::Device),
                              .num_threads = a.threads,
                              .load_bytes_per_s = machine.load_bytes_per_s,
                              .store_bytes_per_s = machine.store_bytes_per_s,
                              .emulate_compute = ComputeRates{.flops_per_s = machine.flops_per_s}}),
               a.clipped ? 2 : 0.5),
        trainer(model, device, prepared) {}

  void step(const RandomBatches& data) {
    const StepResult r = trainer.step(data.batches(), 3e-4);
    step_s.push_back(r.step_s);
    update_s.push_back(r.update_s);
    speculated_chunks += r.speculated_chunks;
    num_rolled_back += r.rolled_back_chunks;
  }

  const char* name;
  Preparation prepared;
  LateNorm device;
  Trainer trainer;
  std::vector<double> step_s, update_s;
  uint64_t speculated_chunks = 0, num_rolled_back = 0;
};

void print(const Runner& r, const SteadyTurns& turns, double bound_s, const Machine& now) {
  const double mean_s =
      std::accumulate(r.step_s.begin(), r.step_s.end(), 0.0) / static_cast<double>(r.step_s.size());
  const double median_s = turns.median_of(r.step_s);
  const Preparation& p = r.prepared;
  fmt::print("{:<10} {:>9.4f} {:>9.4f} {:>9.3f} {:>9.4f} {:>9.4f} {:>8} {:>10} {:>7} {:>6}\n",
             r.name, median_s, mean_s, median_s / bound_s,
             simulate(p.plan, p.trace, *p.layout, now).seconds, turns.median_of(r.update_s),
             p.plan.speculated.size(), r.speculated_chunks, r.num_rolled_back, turns.num_steady());
}

int run(const Arguments& a) {
  const Gpt2 model(a.gpt, kBatch, kLength, DType::BF16);
  CoresMeter meter(a.threads);
  SteadyTurns turns(meter);
  const Preparation plain =
      prepare(model, options_of(UpdateOrder::Overlap, true, a), {.num_threads = a.threads});
  const Machine machine = machine_of(plain, turns.planned(), a);
  Runner overlap(model, UpdateOrder::Overlap, machine, a);
  Runner speculate(model, UpdateOrder::Speculate, machine, a);
  const RandomBatches data(a.gpt.vocabulary, kBatch, kLength, 1);
  // Where all is clipped the first steps count: they hope the most often.
  for (int i = 0; i < (a.clipped ? 0 : kWarmUps); ++i) {
    overlap.trainer.step(data.batches(), 3e-4);
    speculate.trainer.step(data.batches(), 3e-4);
  }
  for (int i = 0; i < a.steps; ++i) {
    turns.take([&] {
      overlap.step(data);
      speculate.step(data);
    });
  }
  const Cores cores = turns.cores();
  Machine now = machine;
  now.update_bytes_per_s = cores.update_bytes_per_s;
  now.copy_bytes_per_s = cores.copy_bytes_per_s;
  const Preparation without =
      prepare(model, options_of(UpdateOrder::Overlap, false, a), {.num_threads = a.threads}, now);
  const Bound bound = lower_bound(without.trace, *without.layout, without.plan, now, false);
  fmt::print(
      "GPT of {:.1f} M parameters in {} chunks; Adam {:.1f}, in the steps {:.1f} GB/s, copies "
      "{:.1f} GB/s, {} threads; kernels {:.3f} TFLOP/s, link {:.2f} GB/s each way\n",
      static_cast<double>(plain.layout->num_model_parameters()) / 1e6, plain.layout->num_chunks(),
      turns.planned().update_bytes_per_s / 1e9, cores.update_bytes_per_s / 1e9,
      cores.copy_bytes_per_s / 1e9, a.threads, machine.flops_per_s / 1e12,
      machine.load_bytes_per_s / 1e9);
  const double forward_s = plain.flops / machine.flops_per_s / 3;
  fmt::print(
      "{} steps each in turn, {}; bound without clipping {:.4f} s by {}; the update of overlap "
      "took {:.2f} x the forward\n",
      a.steps, a.clipped ? "all clipped" : "none clipped", bound.seconds, bound.bound_by,
      turns.median_of(overlap.update_s) / forward_s);
  fmt::print("{:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>10} {:>7} {:>6}\n", "", "median s",
             "mean s", "median/b", "simulated", "update s", "planned", "speculated", "undone",
             "steady");
  print(overlap, turns, bound.seconds, now);
  print(speculate, turns, bound.seconds, now);
  return 0;
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  return ebb::bench::exit_code_of("bench_speculation",
                                  [&] { return ebb::bench::run(ebb::bench::parse(argc, argv)); });
}

// What does a step gain that updates in the hope that clipping will not bite, and lose where it
// does?
//
//   bench_speculation [--clipped] [--steps 60] [--update 1.8] [--threads N] [--chunks N]
//                     [--layers 16] [--channels 1024] [--chunk-mib 4] [--only overlap|speculate]
//
// A rehearsal of a GPT of 200 M parameters: kernels sleep; copies, over an emulated link, and the
// CPU Adam are real. Rates are chosen so that the update takes --update times as long as the
// forward, and loads half of it. Without --clipped clipping never bites: a step that overlaps, and
// one that speculates, beside the bound of a step without clipping. With it every step is clipped
// by the gradient that comes home last, so that all that was made in hope is wrong: the sum of the
// steps beside that of `overlap`. --chunks: how many are speculated on; otherwise the planner
// chooses. Adam's rate is measured before and after each row.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "bench/cores.h"
#include "bench/random_batches.h"
#include "model_zoo/gpt2.h"
#include "scheduler/trainer.h"

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
  Gpt2Config gpt = {.vocabulary = 256, .channels = 1024, .num_layers = 16, .num_heads = 8};
  size_t chunk_mib = 4;
  std::string only = {};
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
    } else if (flag == "--only") {
      a.only = value;
    } else {
      throw ConfigError("no flag " + flag +
                        "; there are --clipped, --steps, --update, --threads, --chunks, --layers, "
                        "--channels, --chunk-mib, --only");
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
  std::unique_ptr<Stream> create_stream(StreamRole role) override {
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
                  .pretended_kernels = true,
                  .copy_bytes_per_s = cores.copy_bytes_per_s};
  const Bound bound = lower_bound(p.trace, *p.layout, p.plan, machine, false);
  const double forward_s = bound.update_s / a.update;
  machine.flops_per_s = p.flops / (3 * forward_s);
  machine.load_bytes_per_s = machine.store_bytes_per_s =
      static_cast<double>(p.plan.loaded_bytes) / (forward_s / 2);
  return machine;
}

struct Measured {
  double median_s = 0, mean_s = 0, bound_s = 0, simulated_s = 0, update_s = 0;
  double update_bytes_per_s = 0;
  uint64_t num_speculated = 0, num_undone = 0;
  size_t num_planned = 0;
  int num_quiet = 0;
};

Measured measure(const Gpt2& model, UpdateOrder update, const Machine& machine,
                 const Arguments& a) {
  const Budgets budgets{.num_threads = a.threads};
  const Preparation p = prepare(model, options_of(update, true, a), budgets, machine);
  LateNorm device(create_device({.memory_bytes = p.ledger.total(Tier::Device),
                                 .num_threads = a.threads,
                                 .load_bytes_per_s = machine.load_bytes_per_s,
                                 .store_bytes_per_s = machine.store_bytes_per_s,
                                 .pretend = ComputeRates{.flops_per_s = machine.flops_per_s}}),
                  a.clipped ? 2 : 0.5);
  Measured m;
  Machine now = machine;
  std::vector<double> all, quiet;
  const Cores before = measure_cores(a.threads);
  {
    Trainer trainer(model, device, p);
    const RandomBatches data(a.gpt.vocabulary, kBatch, kLength, 1);
    // Where all is clipped the first steps count: they hope the most often.
    for (int i = 0; i < (a.clipped ? 0 : kWarmUps); ++i) trainer.step(data.batches(), 3e-4);
    for (int i = 0; i < a.steps; ++i) {
      const LoadGate gate;
      const StepResult r = trainer.step(data.batches(), 3e-4);
      all.push_back(r.step_s);
      m.update_s += r.update_s / a.steps;
      if (gate.quiet()) quiet.push_back(r.step_s);
      m.num_speculated += r.speculated_chunks;
      m.num_undone += r.undone_chunks;
    }
  }
  const Cores after = measure_cores(a.threads);
  now.update_bytes_per_s = (before.update_bytes_per_s + after.update_bytes_per_s) / 2;
  now.copy_bytes_per_s = (before.copy_bytes_per_s + after.copy_bytes_per_s) / 2;
  m.update_bytes_per_s = now.update_bytes_per_s;
  m.num_quiet = static_cast<int>(quiet.size());
  for (const double seconds : all) m.mean_s += seconds / static_cast<double>(all.size());
  m.median_s = median(quiet.empty() ? all : quiet);
  m.num_planned = p.plan.speculated.size();
  m.simulated_s = simulate(p.plan, p.trace, *p.layout, now).seconds;
  const Preparation without =
      prepare(model, options_of(UpdateOrder::Overlap, false, a), budgets, now);
  m.bound_s = lower_bound(without.trace, *without.layout, without.plan, now, false).seconds;
  return m;
}

int run(const Arguments& a) {
  const Gpt2 model(a.gpt, kBatch, kLength, DType::BF16);
  const Cores cores = measure_cores(a.threads);
  const Preparation plain =
      prepare(model, options_of(UpdateOrder::Overlap, true, a), {.num_threads = a.threads});
  const Machine machine = machine_of(plain, cores, a);
  fmt::print(
      "GPT of {:.1f} M parameters in {} chunks; Adam {:.1f} GB/s, copies {:.1f} GB/s, {} threads; "
      "kernels {:.3f} TFLOP/s, link {:.2f} GB/s each way\n",
      static_cast<double>(plain.layout->num_model_parameters()) / 1e6, plain.layout->num_chunks(),
      cores.update_bytes_per_s / 1e9, cores.copy_bytes_per_s / 1e9, a.threads,
      machine.flops_per_s / 1e12, machine.load_bytes_per_s / 1e9);
  fmt::print("{:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>10} {:>7}  {}\n", "", "median s",
             "mean s", "bound s", "median/b", "simulated", "update s", "planned", "speculated",
             "undone", "Adam GB/s, quiet steps");
  for (const UpdateOrder update : {UpdateOrder::Overlap, UpdateOrder::Speculate}) {
    const std::string name = update == UpdateOrder::Overlap ? "overlap" : "speculate";
    if (!a.only.empty() && name != a.only) continue;
    const Measured m = measure(model, update, machine, a);
    fmt::print(
        "{:<10} {:>9.4f} {:>9.4f} {:>9.4f} {:>9.3f} {:>9.4f} {:>9.4f} {:>8} {:>10} {:>7}  {:.1f}, "
        "{}\n",
        name, m.median_s, m.mean_s, m.bound_s, m.median_s / m.bound_s, m.simulated_s, m.update_s,
        m.num_planned, m.num_speculated, m.num_undone, m.update_bytes_per_s / 1e9, m.num_quiet);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  try {
    return ebb::bench::run(ebb::bench::parse(argc, argv));
  } catch (const std::exception& e) {
    fmt::print("{}\n", e.what());
    return 1;
  }
}

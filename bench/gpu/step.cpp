// Step time, model-FLOP utilisation and share of the lower bound, with everything on the device and
// with a quarter of the device memory for weights and gradients. Both must give the same bits.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "bench/gpt2_preset.h"
#include "bench/gpu/gpu.h"
#include "bench/random_batches.h"
#include "scheduler/plan/simulate.h"
#include "scheduler/run/trainer.h"
#include "tools/machine_rates.h"

namespace ebb::bench {
namespace {

struct Case {
  const char* preset;
  int64_t batch, length;
  uint32_t accumulation;
};

constexpr Case kCases[] = {
    {"gpt2", 16, 1024, 1}, {"gpt2-xl", 8, 1024, 4}, {"gpt3-2.7b", 4, 2048, 4}};
constexpr Gpt2Config kSmall = {
    .vocabulary = 96, .max_positions = 32, .channels = 32, .num_layers = 2, .num_heads = 2};

struct Measured {
  StepResult middle = {};  // the step of median time
  double last_loss = 0;
  uint64_t state = 0;
};

Measured train(const Model& model, const Preparation& prepared, const RandomBatches& data,
               int num_steps) {
  const auto device = create_device(
      {.profile = {.kind = DeviceKind::Cuda}, .memory_bytes = prepared.ledger.total(Tier::Device)});
  Trainer trainer(model, *device, prepared);
  for (int i = 0; i < 2; ++i) trainer.step(data.batches(), 3e-4);
  std::vector<StepResult> steps;
  for (int i = 0; i < num_steps; ++i) steps.push_back(trainer.step(data.batches(), 3e-4));
  Measured measured{.last_loss = steps.back().loss, .state = trainer.state_hash()};
  std::ranges::sort(steps, {}, &StepResult::step_s);
  measured.middle = steps[steps.size() / 2];
  return measured;
}

void print(const char* what, const Preparation& prepared, const Measured& measured,
           const Machine& machine, double model_flops, double tokens, double peak) {
  const StepResult& step = measured.middle;
  const Bound bound = lower_bound(prepared.trace, *prepared.layout, prepared.plan, machine,
                                  prepared.options.max_grad_norm > 0);
  const double predicted_s =
      simulate(prepared.plan, prepared.trace, *prepared.layout, machine).seconds;
  fmt::print(
      "  {:<9} {:>9} {:>9.1f} {:>9.0f} {:>8.1f} {:>6.1f} % {:>9.1f} {:>8} {:>6.1f} % {:>9.1f} "
      "{:>8.1f} {:>8.2f} {:>8.2f}\n",
      what, format_bytes(prepared.ledger.total(Tier::Device)), 1e3 * step.step_s,
      tokens / step.step_s, model_flops / step.step_s / 1e12,
      100 * model_flops / step.step_s / peak, 1e3 * bound.seconds, bound.bound_by,
      100 * bound.seconds / step.step_s, 1e3 * predicted_s, 1e3 * step.stall_s,
      1e-9 * static_cast<double>(step.loaded_bytes), 1e-9 * static_cast<double>(step.stored_bytes));
  std::fflush(stdout);
}

/// The machine with the compute rate that this model reached when everything was resident, and the
/// measured rates of link and optimizer.
Machine as_reached(Machine machine, const Preparation& prepared, const StepResult& step) {
  return {.flops_per_s = prepared.flops / step.compute_s,
          .load_bytes_per_s = machine.load_bytes_per_s,
          .store_bytes_per_s = machine.store_bytes_per_s,
          .update_bytes_per_s = machine.update_bytes_per_s};
}

void measure(const char* name, const Gpt2Config& config, const Case& c, size_t chunk_bytes,
             const Machine& machine, double peak, int num_steps) {
  const Gpt2 model(config, c.batch, c.length, DType::BF16);
  const RandomBatches data(config.vocabulary, c.batch, c.length, c.accumulation);
  const TrainerOptions options{.chunk_bytes = chunk_bytes, .gradient_accumulation = c.accumulation};
  const DeviceInfo device = create_device({.profile = {.kind = DeviceKind::Cuda}})->info();
  const Budgets budgets{.device_memory = device.memory_bytes, .device = device.profile};
  const auto tokens = static_cast<double>(c.batch * c.length * c.accumulation);
  const double flops = training_flops(config, static_cast<uint64_t>(tokens), c.length);
  const Preparation all = prepare(model, options, budgets, machine);
  fmt::print("{}: {:.1f} M parameters, {} x {} x {} tokens a step\n", name,
             static_cast<double>(all.layout->num_model_parameters()) / 1e6, c.accumulation, c.batch,
             c.length);
  const Measured resident = train(model, all, data, num_steps);
  const Machine reached = as_reached(machine, all, resident.middle);
  print("resident", all, resident, reached, flops, tokens, peak);

  const auto activations =
      static_cast<uint32_t>((all.trace.arena_bytes + chunk_bytes - 1) / chunk_bytes);
  const uint32_t state = all.full_blocks - activations;
  const uint32_t blocks = std::max(all.smallest_blocks, activations + state / 4);
  const size_t less = (all.full_blocks - blocks) * chunk_bytes;
  const Preparation quarter =
      prepare(model, options,
              {.device_memory = all.full_device_bytes - less, .device = device.profile}, machine);
  const Measured streamed = train(model, quarter, data, num_steps);
  print("a quarter", quarter, streamed, reached, flops, tokens, peak);
  if (std::bit_cast<uint64_t>(streamed.last_loss) != std::bit_cast<uint64_t>(resident.last_loss) ||
      streamed.state != resident.state) {
    throw std::runtime_error(
        fmt::format("WRONG RESULT: {}: loss {:.17g} and {:.17g}, state {:016x} and {:016x}", name,
                    resident.last_loss, streamed.last_loss, resident.state, streamed.state));
  }
  fmt::print("  the same bits: loss {:.6f}, state {:016x}\n", resident.last_loss, resident.state);
}

double peak_of(const Options& options) {
  Gpu gpu(options);
  return product_peak(gpu, options.small);
}

}  // namespace

void measure_steps(const Options& options) {
  const double peak = peak_of(options);
  fmt::print("of a peak of {:.1f} TFLOP/s (8192 x 8192 x 8192)\n", peak / 1e12);
  fmt::print("  {:<9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>9} {:>8} {:>8} {:>9} {:>8} {:>8} {:>8}\n",
             "", "device", "step ms", "tokens/s", "TFLOP/s", "of peak", "bound ms", "by", "share",
             "predicted", "stall ms", "GB up", "GB down");
  if (options.small) {
    const Machine none = {};
    measure("small", kSmall, {"", 2, 16, 2}, size_t{2} << 20, none, peak, 2);
    return;
  }
  const Machine machine =
      machine_rates({.profile = {.kind = DeviceKind::Cuda}}, DType::BF16, DType::BF16, {}).machine;
  fmt::print("link {:.1f} GB/s up, {:.1f} down; AdamW {:.1f} GB/s\n",
             machine.load_bytes_per_s / 1e9, machine.store_bytes_per_s / 1e9,
             machine.update_bytes_per_s / 1e9);
  for (const Case& c : kCases) {
    if (!options.preset.empty() && options.preset != c.preset) continue;
    measure(c.preset, find_gpt2_preset(c.preset), c, size_t{64} << 20, machine, peak, 5);
  }
}

}  // namespace ebb::bench

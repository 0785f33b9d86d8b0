// How much do overlapped updates and vertical order gain if link, compute and cores are about
// equally busy, as with a GPU? How much processor time does the executor need?
//
//   bench_emulated_step [--size 0.1B|0.35B|1B] [--rounds 5] [--threads N] [--share 25]
//                       [--balance 0.87] [--chunk-mib N] [--vocabulary 256] [--resident N]
//                       [--device-updates N] [--simulate] [--no-horizontal]
//
// Kernels sleep for their predicted time; copies, over an emulated link, and the CPU Adam are real.
// The rows of the table: the update is overlapped or waited for, micro-batches are vertical or
// horizontal, without and with clipping. A round is one step. Before each row, the program measures
// how fast the cores run Adam and copy. It then chooses the rates of link and kernels so that the
// larger direction of the link and compute each need --balance of the time of the cores' work (Adam
// and copies) in a step of the first row's plan. Each row has the medians of the rounds, the bound
// (with clipping, that of the step's two phases) and the prediction; both use the rates of the
// cores in these rounds. `parts` is the longest of compute, link and cores divided by the shortest.
//
// Then the executor's own cost (executor_cost.h), in processor time of a thread for each operation
// of the first row's plan: at most 5 us on the program thread and 5 us on the copy thread. It is
// measured on the device of the steps, where it includes submitting to the streams, and waking and
// being woken by their threads; and on the simulated device, whose streams do nothing.
//
// --share: the device memory for weights and gradients, in percent of their size. --simulate: plans
// only. --no-horizontal: half of the table. --resident, --device-updates: the number of resident
// chunks, and of chunks with a device update; otherwise the planner chooses. Rows that do not fit
// in memory are left out.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/executor_cost.h"
#include "bench/exit_code.h"
#include "bench/random_batches.h"
#include "bench/rounds.h"
#include "bench/tolerance.h"
#include "model_zoo/gpt2.h"
#include "scheduler/plan/simulate.h"
#include "scheduler/run/trainer.h"
#include "system/cores.h"
#include "tools/machine.h"

namespace ebb::bench {
namespace {

constexpr int64_t kBatch = 1, kLength = 32;
constexpr uint32_t kAccumulate = 4;
constexpr int kWarmUps = 2;
constexpr double kMostExecutor_s = 5e-6;  // for each operation of a plan, on each of two threads

struct Size {
  const char* name;
  Gpt2Config config;
  size_t chunk_mib;
};
constexpr Size kSizes[] = {
    {"0.1B", {.channels = 768, .num_layers = 12, .num_heads = 12}, 4},
    {"0.35B", {.channels = 1024, .num_layers = 24, .num_heads = 16}, 8},
    {"1B", {.channels = 1792, .num_layers = 24, .num_heads = 28}, 16},
};

struct Arguments {
  std::string size = kSizes[0].name;
  int64_t vocabulary = 256;
  size_t chunk_mib = 0;  // 0: the default of the size
  size_t rounds = 5;
  int threads = num_usable_cores();
  int share = 25;
  double balance = 0.87;
  std::optional<uint32_t> resident = {};  // nothing: the planner's choice
  std::optional<uint32_t> device_updates = {};
  bool simulate = false;
  bool no_horizontal = false;
};

const Size& find_size(const std::string& name) {
  for (const Size& size : kSizes) {
    if (name == size.name) return size;
  }
  throw ConfigError("--size " + name + ": there are 0.1B, 0.35B and 1B");
}

size_t chunk_mib(const Arguments& a) {
  return a.chunk_mib > 0 ? a.chunk_mib : find_size(a.size).chunk_mib;
}

struct Row {
  UpdateOrder update;
  MicroBatchOrder order;
  bool clipped;
};

constexpr Row kFirstRow{UpdateOrder::Overlap, MicroBatchOrder::Vertical, false};

TrainerOptions options_of(const Row& row, const Arguments& a) {
  return {.dtype = DType::BF16,
          .chunk_bytes = chunk_mib(a) << 20,
          .gradient_accumulation = kAccumulate,
          .schedule = {.micro_batch_order = row.order,
                       .update = row.update,
                       .resident_chunks = a.resident,
                       .device_updates = a.device_updates},
          .max_grad_norm = row.clipped ? 1.0f : 0.0f};
}

/// The budget of every row: the activations of the first row, and --share of the weights and
/// gradients.
size_t device_budget(const Gpt2& model, const Arguments& a) {
  const Preparation all =
      prepare(model, options_of(kFirstRow, a), {.device = {.num_threads = a.threads}});
  const size_t chunk = all.layout->chunk_bytes();
  const size_t activations = (all.trace.arena_bytes + chunk - 1) / chunk * chunk;
  const size_t state = all.full_blocks * chunk - activations;
  const size_t fixed = all.full_device_bytes - all.full_blocks * chunk;
  const size_t wanted = fixed + activations + state * static_cast<size_t>(a.share) / 100;
  return std::max(wanted, all.smallest_device_bytes);
}

/// Rates with which link and kernels each take `balance` of the cores' time for this plan.
Machine balanced_machine(const Preparation& p, const CoreRates& cores, double balance) {
  Machine machine{.update_bytes_per_s = cores.update_bytes_per_s,
                  .shared_cores = true,
                  .emulate_compute = true,
                  .copy_bytes_per_s = cores.copy_bytes_per_s};
  const Bound bound = lower_bound(p.trace, *p.layout, p.plan, machine, false);
  const double seconds = balance * bound.seconds;  // only the cores have a rate yet
  const double larger = static_cast<double>(std::max(p.plan.loaded_bytes, p.plan.stored_bytes));
  machine.load_bytes_per_s = machine.store_bytes_per_s = larger / seconds;
  machine.flops_per_s = p.flops / seconds;
  return machine;
}

const char* name_of_row(const Row& row) {
  const bool vertical = row.order == MicroBatchOrder::Vertical;
  if (row.update == UpdateOrder::Overlap)
    return vertical ? "overlap, vertical" : "overlap, horizontal";
  return vertical ? "wait, vertical" : "wait, horizontal";
}

/// A machine whose rates are balanced for the plan of the first row that follows from these rates.
Machine machine_for(const Gpt2& model, const Arguments& a, size_t budget, const CoreRates& cores) {
  const Budgets budgets{.device_memory = budget, .device = {.num_threads = a.threads}};
  Machine machine;
  for (int i = 0; i < 4; ++i) {  // other rates lead to another plan
    machine = balanced_machine(prepare(model, options_of(kFirstRow, a), budgets, machine), cores,
                               a.balance);
  }
  return machine;
}

/// The longest of compute, link and the cores' work divided by the shortest.
double spread_of_parts(const Bound& bound, const Plan& plan, const Machine& machine) {
  const double copied = static_cast<double>(plan.loaded_bytes + plan.stored_bytes);
  const auto [least, most] = std::minmax({bound.compute_s, std::max(bound.load_s, bound.store_s),
                                          bound.update_s + copied / machine.copy_bytes_per_s});
  return most / least;
}

DeviceOptions device_options(const Preparation& p, const Machine& machine, int num_threads) {
  return {.profile = {.num_threads = num_threads},
          .memory_bytes = p.ledger.total(Tier::Device),
          .load_bytes_per_s = machine.load_bytes_per_s,
          .store_bytes_per_s = machine.store_bytes_per_s,
          .emulate_compute = ComputeRates{.flops_per_s = machine.flops_per_s}};
}

void print_simulated(const Row& row, const Preparation& p, const Machine& machine) {
  const Bound bound = lower_bound(p.trace, *p.layout, p.plan, machine, row.clipped);
  const Simulation simulated = simulate(p.plan, p.trace, *p.layout, machine);
  fmt::print(
      "{:>7.2f} {:>8.3f} {:>9.3f} {:>9.3f}  stall {:.3f}, defers {:.2f}, resident {}, device "
      "updates {}, {}\n",
      spread_of_parts(bound, p.plan, machine), bound.seconds, simulated.seconds,
      simulated.seconds / bound.seconds, simulated.stall_s, p.schedule.deferred_share,
      p.plan.count(&ChunkRecord::ends_on_device), p.plan.count(&ChunkRecord::is_on_device),
      bound.bound_by);
}

void print_measured(const Row& row, const Preparation& p, const Machine& machine,
                    const Rounds<StepResult>& rounds) {
  const CoreRates cores = rounds.rates();
  Machine now = machine;
  now.update_bytes_per_s = cores.update_bytes_per_s;
  now.copy_bytes_per_s = cores.copy_bytes_per_s;
  const Bound bound = lower_bound(p.trace, *p.layout, p.plan, now, row.clipped);
  const double predicted_s = simulate(p.plan, p.trace, *p.layout, now).seconds;
  const double step_s = rounds.median_of(&StepResult::step_s);
  const Tolerance tolerance = tolerance_of(p.layout->num_model_parameters(), true);
  fmt::print(
      "{:>7.2f} {:>8.3f} {:>9.3f} {:>9.3f} {:>7.3f} {:>6.1f} {:>7.3f} {:>8.3f}  {}; {}; {}\n",
      spread_of_parts(bound, p.plan, now), bound.seconds, predicted_s, step_s,
      step_s / bound.seconds, 100 * bound.seconds / step_s, rounds.median_of(&StepResult::stall_s),
      rounds.median_of(&StepResult::update_s), bound.bound_by,
      tolerance.text(predicted_s / step_s - 1), rounds.text());
}

/// "needs 17.2 GiB, there are 15.1 GiB", or nullopt if the memory is sufficient.
std::optional<std::string> missing_memory(const Preparation& p) {
  const size_t needed = p.ledger.total(Tier::Host) + p.ledger.total(Tier::Device);
  const size_t available = read_memory_limits().usable_bytes();
  if (needed <= available / 100 * 97) return std::nullopt;
  return fmt::format("needs {}, there are {}", format_bytes(needed), format_bytes(available));
}

void run_row(const Row& row, const Gpt2& model, const Arguments& a, size_t budget,
             CoreRatesMeter& meter) {
  const CoreRates cores = meter.measure();
  const Machine machine = machine_for(model, a, budget, cores);
  const Preparation p =
      prepare(model, options_of(row, a),
              {.device_memory = budget, .device = {.num_threads = a.threads}}, machine);
  fmt::print("{:<20} {:<8}{:>6.1f} {:>6.2f} {:>6.2f}", name_of_row(row),
             row.clipped ? "clipped" : "-", 1e-9 * cores.update_bytes_per_s,
             1e-9 * machine.load_bytes_per_s, 1e-12 * machine.flops_per_s);
  if (a.simulate) {
    print_simulated(row, p, machine);
  } else if (const auto missing = missing_memory(p)) {
    fmt::print("  left out: {}\n", *missing);
  } else {
    const RandomBatches data(a.vocabulary, kBatch, kLength, kAccumulate);
    const auto device = create_device(device_options(p, machine, a.threads));
    Trainer trainer(model, *device, p);
    for (int i = 0; i < kWarmUps; ++i) trainer.step(data.batches(), 3e-4);
    print_measured(row, p, machine, Rounds<StepResult>(meter, a.rounds, [&] {
                     return trainer.step(data.batches(), 3e-4);
                   }));
  }
  std::fflush(stdout);
}

void run_table(const Gpt2& model, const Arguments& a, size_t budget, CoreRatesMeter& meter) {
  fmt::print("rates: Adam and link (each way) in GB/s, kernels in TFLOP/s\n");
  fmt::print("{:<28}{:>6} {:>6} {:>6}{:>7} {:>8} {:>9} {:>9} {:>7} {:>6} {:>7} {:>8}\n", "", "Adam",
             "link", "kern.", "parts", "bound s", "predicted", "achieved", "ratio", "share",
             "stall s", "update s");
  for (bool clipped : {false, true}) {
    for (MicroBatchOrder order : {MicroBatchOrder::Vertical, MicroBatchOrder::Horizontal}) {
      if (order == MicroBatchOrder::Horizontal && a.no_horizontal) continue;
      for (UpdateOrder update : {UpdateOrder::Overlap, UpdateOrder::Wait}) {
        run_row({update, order, clipped}, model, a, budget, meter);
      }
    }
  }
}

void print_cost(const char* thread, const char* device, const ThreadCost& cost, size_t num_ops) {
  const double achieved_s = cost.own_s / static_cast<double>(num_ops);
  fmt::print("{:<15} {:<10} {:>8.2f} {:>9.2f} {:>6.0f} {:>11.2f} {:>11} {:>9.1f} {:>7}{}\n", thread,
             device, 1e6 * kMostExecutor_s, 1e6 * achieved_s, 100 * achieved_s / kMostExecutor_s,
             1e6 * cost.own_s / std::max(1u, cost.num_operations), cost.num_operations,
             1e6 * cost.map_s / std::max(1u, cost.num_mapped), cost.num_mapped,
             achieved_s > kMostExecutor_s ? "  EXCEEDED" : "");
}

void run_executor(const Gpt2& model, const Arguments& a, size_t budget, CoreRatesMeter& meter) {
  const CoreRates cores = meter.measure();
  const Machine machine = machine_for(model, a, budget, cores);
  const Preparation p =
      prepare(model, options_of(kFirstRow, a),
              {.device_memory = budget, .device = {.num_threads = a.threads}}, machine);
  const size_t num_ops = p.plan.ops.size();
  fmt::print(
      "\nthe executor's own processor time in a step of {} operations, us; share of what is "
      "allowed; "
      "`its own`: operations that the thread itself handles; mapping of blocks apart\n",
      num_ops);
  fmt::print("{:<15} {:<10} {:>8} {:>9} {:>6} {:>11} {:>11} {:>9} {:>7}\n", "thread", "device",
             "bound us", "achieved", "share", "an own op.", "its own", "us a map", "maps");
  const auto print = [&](const char* device, const ExecutorCost& cost) {
    print_cost("program thread", device, cost.program, num_ops);
    print_cost("copy thread", device, cost.copy, num_ops);
  };
  print("emulated",
        measure_executor(p, device_options(p, machine, a.threads), machine.update_bytes_per_s));
  print("simulated",
        measure_executor(p, {.profile = {.kind = DeviceKind::Sim, .num_threads = a.threads}}, 0));
}

int run(const Arguments& a) {
  Gpt2Config config = find_size(a.size).config;
  config.vocabulary = a.vocabulary;
  const Gpt2 model(config, kBatch, kLength, DType::BF16);
  const size_t budget = device_budget(model, a);
  const Preparation p = prepare(model, options_of(kFirstRow, a),
                                {.device_memory = budget, .device = {.num_threads = a.threads}});
  fmt::print(
      "GPT of {:.2f} B parameters, bf16, {} micro-batches, chunks of {} MiB, {} blocks ({}; all: "
      "{}), {} threads\n",
      static_cast<double>(p.layout->num_model_parameters()) * 1e-9, kAccumulate, chunk_mib(a),
      p.num_blocks, format_bytes(budget), p.full_blocks, a.threads);
  CoreRatesMeter meter(a.threads);
  run_table(model, a, budget, meter);
  if (!a.simulate) run_executor(model, a, budget, meter);
  return 0;
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  ebb::bench::Arguments a;
  CLI::App app("Whole steps with emulated kernels and link, and what the executor takes of them");
  app.option_defaults()->always_capture_default();
  app.add_option("--size", a.size, "0.1B, 0.35B or 1B");
  app.add_option("--rounds", a.rounds, "how many rounds count");
  app.add_option("--threads", a.threads, "threads of updates and copies");
  app.add_option("--share", a.share, "percent of weights and gradients that the device holds");
  app.add_option("--balance", a.balance, "time of link and compute over that of the cores");
  app.add_option("--chunk-mib", a.chunk_mib, "chunk size in MiB; 0: that of the size");
  app.add_option("--vocabulary", a.vocabulary, "vocabulary of the GPT");
  app.add_option("--resident", a.resident, "chunks of weights that stay on the device");
  app.add_option("--device-updates", a.device_updates, "chunks that the device updates");
  app.add_flag("--simulate", a.simulate, "print the plans only");
  app.add_flag("--no-horizontal", a.no_horizontal, "leave out the horizontal order");
  CLI11_PARSE(app, argc, argv);
  return ebb::bench::exit_code_of("bench_emulated_step", [&] { return ebb::bench::run(a); });
}

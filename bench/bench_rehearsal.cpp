// What do the update's overlap and the order of micro-batches gain at a GPU's ratios?
//
//   bench_rehearsal [--size 0.1B|0.35B|1B] [--rounds 5] [--threads N] [--share 25] [--balance 0.87]
//                   [--chunk-mib N] [--vocabulary 256] [--held N]
//                   [--device-updates N] [--simulate] [--no-horizontal]
//
// A rehearsal: kernels sleep for their predicted time; copies, over an emulated link, and the CPU
// Adam are real. A table: the update overlapped or waited for, micro-batches vertical or
// horizontal, without clipping and with it: bound (with clipping that of its two phases),
// simulated, achieved, share; processor seconds of Adam and of copying; and what else it takes, as
// a share of a core: the program's and the mover's threads, which is the executor's overhead, and
// the links' threads, which is what sleeping precisely costs.
//
// Before each row is measured how fast this machine's cores run Adam, and copy. Rates of link and
// kernels are then chosen so that the link's larger direction and compute each take --balance of
// the time of the cores' work (Adam and the copies' own) in a step of the first row's plan. Steps
// count beside which the cores stayed about as fast (steady_turns.h): medians of those, beside the
// bound of what the cores could do then; `parts` is the longest of compute, link and cores against
// the shortest. A row of too few such steps is marked UNSTEADY and run again, three times at most.
//
// --share: percent of what weights and gradients would take that the device holds. --simulate: the
// plans only. --no-horizontal: half the table. --held, --device-updates: chunks of weights that the
// device holds from step to step, and those that it updates; otherwise the planner chooses. Rows
// for which memory does not suffice are left out.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/exit_code.h"
#include "bench/random_batches.h"
#include "bench/steady_turns.h"
#include "bench/thread_times.h"
#include "model_zoo/gpt2.h"
#include "scheduler/plan/simulate.h"
#include "scheduler/run/trainer.h"
#include "system/cores.h"
#include "system/thread_team.h"
#include "tools/machine.h"

namespace ebb::bench {
namespace {

constexpr int64_t kBatch = 1, kLength = 32;
constexpr uint32_t kAccumulate = 4;
constexpr int kWarmUps = 2;
constexpr int kTries = 3;

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
  const Size* size = &kSizes[0];
  int64_t vocabulary = 256;
  size_t chunk_mib = 0;  // 0: as the size has it
  size_t rounds = 5;
  int threads = num_usable_cores();
  int share = 25;
  double balance = 0.87;
  std::optional<uint32_t> held = {};  // nothing: the planner's choice
  std::optional<uint32_t> device_updates = {};
  bool simulate = false;
  bool horizontal = true;
};

const Size& find_size(const std::string& name) {
  for (const Size& size : kSizes) {
    if (name == size.name) return size;
  }
  throw ConfigError("--size " + name + ": there are 0.1B, 0.35B and 1B");
}

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--simulate") {
      a.simulate = true;
      continue;
    }
    if (flag == "--no-horizontal") {
      a.horizontal = false;
      continue;
    }
    const std::string value = i + 1 < argc ? argv[++i] : "";
    if (flag == "--size") {
      a.size = &find_size(value);
    } else if (flag == "--vocabulary") {
      a.vocabulary = std::atoll(value.c_str());
    } else if (flag == "--chunk-mib") {
      a.chunk_mib = std::strtoull(value.c_str(), nullptr, 10);
    } else if (flag == "--rounds") {
      a.rounds = std::strtoul(value.c_str(), nullptr, 10);
    } else if (flag == "--threads") {
      a.threads = std::atoi(value.c_str());
    } else if (flag == "--balance") {
      a.balance = std::atof(value.c_str());
    } else if (flag == "--held") {
      a.held = static_cast<uint32_t>(std::atoi(value.c_str()));
    } else if (flag == "--device-updates") {
      a.device_updates = static_cast<uint32_t>(std::atoi(value.c_str()));
    } else if (flag == "--share") {
      a.share = std::atoi(value.c_str());
    } else {
      throw ConfigError("no flag " + flag +
                        "; there are --size, --vocabulary, --chunk-mib, --balance, --simulate, "
                        "--rounds, --threads, --share");
    }
  }
  if (a.chunk_mib == 0) a.chunk_mib = a.size->chunk_mib;
  return a;
}

struct Row {
  UpdateOrder update;
  MicroBatchOrder order;
  bool clipped;
};

constexpr Row kFirstRow{UpdateOrder::Overlap, MicroBatchOrder::Vertical, false};

TrainerOptions options_of(const Row& row, const Arguments& a) {
  return {.dtype = DType::BF16,
          .chunk_bytes = a.chunk_mib << 20,
          .micro_batch_order = row.order,
          .gradient_accumulation = kAccumulate,
          .update = row.update,
          .resident_chunks = a.held,
          .device_updates = a.device_updates,
          .max_grad_norm = row.clipped ? 1.0f : 0.0f};
}

/// The same budget for every row: what the first one's activations take, and a share of the rest.
size_t device_budget(const Gpt2& model, const Arguments& a) {
  const Preparation all = prepare(model, options_of(kFirstRow, a), {.num_threads = a.threads});
  const size_t chunk = all.layout->chunk_bytes();
  const size_t activations = (all.trace.arena_bytes + chunk - 1) / chunk * chunk;
  const size_t state = all.full_blocks * chunk - activations;
  const size_t fixed = all.full_device_bytes - all.full_blocks * chunk;
  const size_t wanted = fixed + activations + state * static_cast<size_t>(a.share) / 100;
  return std::max(wanted, all.smallest_device_bytes);
}

/// Rates at which link and kernels each take `balance` of the cores' time for this plan.
Machine balanced_machine(const Preparation& p, const Cores& cores, double balance) {
  Machine machine{.update_bytes_per_s = cores.update_bytes_per_s,
                  .shared_cores = true,
                  .emulate_compute = true,
                  .copy_bytes_per_s = cores.copy_bytes_per_s};
  const Bound bound = lower_bound(p.trace, *p.layout, p.plan, machine, false);
  const double seconds = balance * bound.seconds;  // nothing but the cores has a rate yet
  const double larger = static_cast<double>(std::max(p.plan.loaded_bytes, p.plan.stored_bytes));
  machine.load_bytes_per_s = machine.store_bytes_per_s = larger / seconds;
  machine.flops_per_s = p.flops / seconds;
  return machine;
}

/// Processor time so far. Adam's threads are the update stream's, and those of the pool that team
/// loops use, which were there before the trainer.
struct Times {
  double adam_s = 0, links_s = 0, rest_s = 0;

  static Times now(const ThreadIds& pool) {
    Times times{.rest_s = process_processor_s()};
    for (int id : threads_of_process()) {
      const std::string name = name_of_thread(id);
      const double seconds = thread_processor_s(id);
      double* const to = name == "ebb update" || pool.contains(id)   ? &times.adam_s
                         : name == "ebb load" || name == "ebb store" ? &times.links_s
                                                                     : nullptr;
      if (to == nullptr) continue;
      *to += seconds;
      times.rest_s -= seconds;
    }
    return times;
  }
};

/// Those that team loops leave behind: all but this one.
ThreadIds pool_threads(int threads) {
  ThreadTeam team(threads);
  for (int i = 0; i < 20; ++i) {  // long enough for each thread to wake up and take its part
    team.for_each(2 * threads,
                  [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
  }
  ThreadIds pool = threads_of_process();
  pool.erase(getpid());
  return pool;
}

struct Measured {
  std::vector<double> step_s, stall_s, update_s, adam_s, program_s, streams_s;
};

/// Steps until `rounds` of them count.
Measured measure(Trainer& trainer, const RandomBatches& data, const ThreadIds& pool,
                 SteadyTurns& turns, size_t rounds) {
  for (int i = 0; i < kWarmUps; ++i) trainer.step(data.batches(), 3e-4);
  Measured m;
  for (size_t tries = 0; turns.num_steady() < rounds && tries < 3 * rounds; ++tries) {
    turns.take([&] {
      const Times before = Times::now(pool);
      const StepResult r = trainer.step(data.batches(), 3e-4);
      const Times after = Times::now(pool);
      m.step_s.push_back(r.step_s);
      m.stall_s.push_back(r.stall_s);
      m.update_s.push_back(r.update_s);
      m.adam_s.push_back(after.adam_s - before.adam_s);
      m.program_s.push_back(after.rest_s - before.rest_s);
      m.streams_s.push_back(after.links_s - before.links_s);
    });
  }
  return m;
}

const char* name_of_row(const Row& row) {
  const bool vertical = row.order == MicroBatchOrder::Vertical;
  if (row.update == UpdateOrder::Overlap)
    return vertical ? "overlap, vertical" : "overlap, horizontal";
  return vertical ? "wait, vertical" : "wait, horizontal";
}

/// For the plan of the first row that these rates lead to.
Machine machine_for(const Gpt2& model, const Arguments& a, size_t budget, const Cores& cores) {
  const Budgets budgets{.device_memory = budget, .num_threads = a.threads};
  Machine machine;
  for (int i = 0; i < 4; ++i) {  // other rates, another plan
    machine = balanced_machine(prepare(model, options_of(kFirstRow, a), budgets, machine), cores,
                               a.balance);
  }
  return machine;
}

/// The longest of compute, link and the cores' work against the shortest.
double spread_of_parts(const Bound& bound, const Plan& plan, const Machine& machine) {
  const double copied = static_cast<double>(plan.loaded_bytes + plan.stored_bytes);
  const auto [least, most] = std::minmax({bound.compute_s, std::max(bound.load_s, bound.store_s),
                                          bound.update_s + copied / machine.copy_bytes_per_s});
  return most / least;
}

/// Did memory stay as fast as it was?
bool run_row(const Row& row, const Gpt2& model, const Arguments& a, size_t budget,
             const RandomBatches& data, CoresMeter& meter) {
  SteadyTurns turns(meter);
  const Machine machine = machine_for(model, a, budget, turns.planned());
  const Preparation p = prepare(model, options_of(row, a),
                                {.device_memory = budget, .num_threads = a.threads}, machine);
  fmt::print("{:<20} {:<8}{:>6.1f} {:>6.2f} {:>6.2f}", name_of_row(row),
             row.clipped ? "clipped" : "-", 1e-9 * turns.planned().update_bytes_per_s,
             1e-9 * machine.load_bytes_per_s, 1e-12 * machine.flops_per_s);
  if (a.simulate) {
    const Bound bound = lower_bound(p.trace, *p.layout, p.plan, machine, row.clipped);
    const Simulation simulated = simulate(p.plan, p.trace, *p.layout, machine);
    fmt::print(
        "{:>7.2f} {:>8.3f} {:>9.3f} {:>9.3f}  stall {:.3f}, carries {:.2f}, holds {}, device "
        "updates {}, {}\n",
        spread_of_parts(bound, p.plan, machine), bound.seconds, simulated.seconds,
        simulated.seconds / bound.seconds, simulated.stall_s,
        p.options.deferred_share.value_or(kDeferredShare), p.plan.resident_at_end.size(),
        p.plan.device_updates.size(), bound.bound_by);
    return true;
  }
  const size_t needed = p.ledger.total(Tier::Host) + p.ledger.total(Tier::Device);
  const size_t available = read_memory_limits().usable_bytes();
  if (needed > available / 100 * 97) {
    fmt::print("  left out: needs {}, there are {}\n", format_bytes(needed),
               format_bytes(available));
    return true;
  }
  const ThreadIds pool = pool_threads(a.threads);
  const auto device =
      create_device({.memory_bytes = p.ledger.total(Tier::Device),
                     .num_threads = a.threads,
                     .load_bytes_per_s = machine.load_bytes_per_s,
                     .store_bytes_per_s = machine.store_bytes_per_s,
                     .emulate_compute = ComputeRates{.flops_per_s = machine.flops_per_s}});
  Trainer trainer(model, *device, p);
  const Measured m = measure(trainer, data, pool, turns, a.rounds);
  const Cores cores = turns.cores();
  Machine now = machine;
  now.update_bytes_per_s = cores.update_bytes_per_s;
  now.copy_bytes_per_s = cores.copy_bytes_per_s;
  const Bound bound = lower_bound(p.trace, *p.layout, p.plan, now, row.clipped);
  const Simulation simulated = simulate(p.plan, p.trace, *p.layout, now);
  const auto middle = [&](const std::vector<double>& values) { return turns.median_of(values); };
  const double step_s = middle(m.step_s);
  const bool steady = turns.num_steady() >= a.rounds;
  fmt::print(
      "{:>7.2f} {:>8.3f} {:>9.3f} {:>9.3f} {:>7.3f} {:>6.1f} {:>7.3f} {:>7.3f} {:>7.3f} "
      "{:>9.2f} {:>9.2f}  {}, {} steady{}\n",
      spread_of_parts(bound, p.plan, now), bound.seconds, simulated.seconds, step_s,
      step_s / bound.seconds, 100 * bound.seconds / step_s, middle(m.stall_s), middle(m.update_s),
      middle(m.adam_s), 100 * middle(m.program_s) / step_s, 100 * middle(m.streams_s) / step_s,
      bound.bound_by, turns.num_steady(), steady ? "" : ", UNSTEADY");
  std::fflush(stdout);
  return steady;
}

int run(const Arguments& a) {
  Gpt2Config config = a.size->config;
  config.vocabulary = a.vocabulary;
  const Gpt2 model(config, kBatch, kLength, DType::BF16);
  const size_t budget = device_budget(model, a);
  const Preparation p =
      prepare(model, options_of(kFirstRow, a), {.device_memory = budget, .num_threads = a.threads});
  fmt::print(
      "GPT of {:.2f} B parameters, bf16, K = {}, chunks of {} MiB, {} blocks ({}; all: {}), {} "
      "threads\n",
      static_cast<double>(p.layout->num_model_parameters()) * 1e-9, kAccumulate, a.chunk_mib,
      p.num_blocks, format_bytes(budget), p.full_blocks, a.threads);
  fmt::print("rates: Adam and link (each way) in GB/s, kernels in TFLOP/s\n");
  const RandomBatches data(config.vocabulary, kBatch, kLength, kAccumulate);
  CoresMeter meter(a.threads);
  fmt::print(
      "{:<28}{:>6} {:>6} {:>6}{:>7} {:>8} {:>9} {:>9} {:>7} {:>6} {:>7} {:>7} {:>7} {:>9} "
      "{:>9}\n",
      "", "Adam", "link", "kern.", "parts", "bound s", "simulated", "achieved", "ratio", "share",
      "stall s", "update s", "Adam cs", "program %", "streams %");
  for (bool clipped : {false, true}) {
    for (MicroBatchOrder order : {MicroBatchOrder::Vertical, MicroBatchOrder::Horizontal}) {
      if (order == MicroBatchOrder::Horizontal && !a.horizontal) continue;
      for (UpdateOrder update : {UpdateOrder::Overlap, UpdateOrder::Wait}) {
        const Row row{update, order, clipped};
        for (int tries = 0; tries < kTries && !run_row(row, model, a, budget, data, meter);
             ++tries) {
        }
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  return ebb::bench::exit_code_of("bench_rehearsal",
                                  [&] { return ebb::bench::run(ebb::bench::parse(argc, argv)); });
}

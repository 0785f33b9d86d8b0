// Is what the planner chooses the fastest, and does a step take as long as it says?
//
//   bench_choose [--large | --small | --case I] [--rounds 5]
//
// Large models are simulated on machines with a GPU: every setting by hand against the choice, and
// how long choosing took. Small ones train on the host backend here, with emulated links: every
// setting in turn, round by round, in one process; measured against predicted (by the machine's
// rates, measured before each case) and the choice against the best: the median of how many times
// as long it took in the same round. Rounds count in which other processes left the cores alone and
// memory was as fast as when rates were measured (steady_turns.h; `steady`). Where none did and
// there was no link, the processor time of a step stands for it (*), else the fastest (LOUD).
// "work" is what the cores do in a step of the choice, predicted and by processor time: that others
// hardly disturb. Settings for which memory does not suffice beside faster ones are left out. Exits
// with 1 where a simulated choice is not the best.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/choose_cases.h"
#include "bench/exit_code.h"
#include "bench/gpt2_preset.h"
#include "bench/random_batches.h"
#include "bench/steady_turns.h"
#include "device/host/memory_limits.h"
#include "scheduler/choose.h"
#include "tools/machine_rates.h"
#include "tools/trial.h"

namespace ebb::bench {
namespace {

std::string short_name(const Candidate& c) {
  return fmt::format("{}/{}/{}/{}", name_of(c.order).substr(0, 1), name_of(c.recompute),
                     name_of(c.activations).substr(0, 1), name_of(c.update).substr(0, 1));
}

// ---- Large models, simulated

/// How a fixed setting fares against the choice over all cases.
struct Fixed {
  int num_fits = 0;
  double log_ratios = 0;
};
using FixedSettings = std::map<std::string, Fixed>;

bool run_large(const LargeCase& c, FixedSettings& fixed) {
  const Gpt2Config& config = find_gpt2_preset(c.preset);
  const Gpt2 model(config, c.batch_size, config.max_positions, DType::BF16);
  const TrainerOptions options{.gradient_accumulation = c.accumulation,
                               .max_grad_norm = c.clip ? 1.0f : 0.0f};
  const auto start = Clock::now();
  const Preparation p = prepare(model, options, {.device_memory = c.device_bytes}, c.machine);
  const double choosing_s = seconds_since(start);
  const Candidate& chosen = p.candidates[p.chosen];
  fmt::print("{:<10} {:<20} {:>4} GiB {:>2}x{}x{} {:<4} {:<12} {:>9.3f} {:>6.3f} {:>7.3f} |",
             c.preset, c.machine_name, c.device_bytes >> 30, c.accumulation, c.batch_size,
             config.max_positions, c.clip ? "clip" : "", short_name(chosen), chosen.seconds,
             chosen.bound.seconds / chosen.seconds, choosing_s);
  bool best = true;
  for (const Candidate& other : p.candidates) {
    if (!other.why_not.empty()) {
      fmt::print(" {:>7}", "-");
      continue;
    }
    TrainerOptions told = options;
    told.micro_batch_order = other.order;
    told.recompute = other.recompute;
    told.activations = other.activations;
    told.update = other.update;
    const Preparation one = prepare(model, told, {.device_memory = c.device_bytes}, c.machine);
    const double seconds = one.candidates[one.chosen].seconds;
    fmt::print(" {:>7.3f}", seconds / chosen.seconds);
    Fixed& setting = fixed[short_name(other)];
    ++setting.num_fits;
    setting.log_ratios += std::log(seconds / chosen.seconds);
    best = best && chosen.seconds <= seconds * (1 + 1e-9);
  }
  fmt::print("{}\n", best ? "" : "  NOT THE BEST");
  return best;
}

bool run_all_large() {
  fmt::print(
      "simulated; settings: h(orizontal) or v(ertical) / recompute / o(verlap) or w(ait); then "
      "each by hand against the choice, - where it does not fit:\n"
      "h/none/o h/none/w h/block/o h/block/w, and the same for v where there are several "
      "micro-batches\n");
  fmt::print("{:<10} {:<20} {:>8} {:>9}     {:<4} {:<12} {:>9} {:>6} {:>7} | ratios\n", "model",
             "machine", "memory", "step", "", "chosen", "predicted", "share", "chose s");
  bool good = true;
  FixedSettings fixed;
  for (const LargeCase& c : large_cases()) good = run_large(c, fixed) && good;
  fmt::print("fixed settings against the choice, geometric mean of the cases in which they fit:\n");
  for (const auto& [name, setting] : fixed) {
    fmt::print("  {:<12} {:>6.3f} x, fits in {} of {}\n", name,
               std::exp(setting.log_ratios / setting.num_fits), setting.num_fits,
               large_cases().size());
  }
  return good;
}

// ---- Small models, measured

/// A setting that is predicted to be so much slower than the choice is not measured.
constexpr double kHopeless = 1.2;
constexpr size_t kChunkBytes = size_t{2} << 20;

double processor_s() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/// A setting with a trainer of its own.
class Setting {
 public:
  Setting(const Model& model, Preparation prepared, const DeviceOptions& device)
      : prepared_(std::move(prepared)),
        device_(create_device(device)),
        trainer_(std::make_unique<Trainer>(model, *device_, prepared_)) {}

  void warm_up(std::span<const MicroBatch> batches) { trainer_->step(batches, 3e-5); }
  void step(std::span<const MicroBatch> batches) {
    const double processor = processor_s();
    step_s_.push_back(trainer_->step(batches, 3e-5).step_s);
    on_cores_.push_back((processor_s() - processor) / device_->info().num_threads);
  }
  double step_s(size_t round) const { return step_s_[round]; }
  double processor_s_of_step() const { return median(on_cores_); }
  double predicted_work_s(const Machine& machine) const {
    const Candidate& c = candidate();
    const double copies = static_cast<double>(c.moved_bytes);
    return c.bound.compute_s + c.bound.update_s +
           (machine.copy_bytes_per_s > 0 ? copies / machine.copy_bytes_per_s : 0);
  }
  double measured_s(const SteadyTurns& rounds) const {
    if (rounds.num_steady() > 0) return rounds.median_of(step_s_);
    return device_->info().load_bytes_per_s > 0 ? *std::ranges::min_element(step_s_)
                                                : median(on_cores_);
  }
  const Candidate& candidate() const { return prepared_.candidates[prepared_.chosen]; }

 private:
  Preparation prepared_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Trainer> trainer_;
  std::vector<double> step_s_, on_cores_;  // of each round
};

/// Of the candidates, in their order: the choice, and of those that are not hopeless as many as
/// memory holds side by side, the faster ones.
std::vector<size_t> settings_to_measure(const Preparation& p) {
  const auto seconds = [&](size_t i) { return i == p.chosen ? 0 : p.candidates[i].seconds; };
  std::vector<size_t> settings;
  for (size_t i = 0; i < p.candidates.size(); ++i) {
    const Candidate& c = p.candidates[i];
    const bool hopeless = c.seconds > kHopeless * p.candidates[p.chosen].seconds;
    if (c.why_not.empty() && !hopeless) settings.push_back(i);
  }
  std::ranges::stable_sort(settings, {}, seconds);
  size_t left = read_memory_limits().usable_bytes() / 10 * 9, count = 0;
  for (; count < settings.size(); ++count) {
    const Candidate& c = p.candidates[settings[count]];
    if (c.host_bytes + c.device_bytes > left) break;
    left -= c.host_bytes + c.device_bytes;
  }
  settings.resize(std::max<size_t>(count, 1));
  std::ranges::sort(settings);
  return settings;
}

struct Verdict {
  double error = 0;        ///< of the choice's prediction
  double worst_error = 0;  ///< of any setting's
  double ratio = 1;        ///< measured: choice against the best
};

/// How many times as long the choice took as the fastest.
double ratio_to_best(const Setting& choice, std::span<const std::unique_ptr<Setting>> settings,
                     const SteadyTurns& rounds) {
  double most = 1;
  for (const auto& other : settings) {
    const double ratio =
        rounds.num_steady() > 0
            ? rounds.median_of([&](size_t r) { return choice.step_s(r) / other->step_s(r); })
            : choice.measured_s(rounds) / other->measured_s(rounds);
    most = std::max(most, ratio);
  }
  return most;
}

MachineRates measure_rates() {
  return machine_rates({}, DType::BF16, DType::BF16, std::filesystem::path());
}

Verdict run_small(const SmallCase& c, CoresMeter& meter, size_t num_rounds) {
  SteadyTurns rounds(meter);
  MachineRates rates = measure_rates();
  const Gpt2 model(find_gpt2_preset(c.preset), c.batch_size, c.length, DType::BF16);
  const TrainerOptions options{.chunk_bytes = kChunkBytes,
                               .gradient_accumulation = c.accumulation,
                               .max_grad_norm = c.clip ? 1.0f : 0.0f};
  fit_to_model(rates,
               {.config = model.config(),
                .batch_size = c.batch_size,
                .length = c.length,
                .accumulation = c.accumulation,
                .chunk_bytes = kChunkBytes},
               {}, {});
  const Preparation all = prepare(model, options, {});
  const size_t least = all.smallest_device_bytes;
  const size_t budget =
      least +
      static_cast<size_t>(c.memory * static_cast<double>(all.resident_device_bytes - least));
  Machine machine = rates.machine;
  DeviceOptions device{.memory_bytes = budget};
  if (c.link > 0) {
    // Rates are whole MB/s, so that a machine a little faster does not ask another question.
    const double bytes = static_cast<double>(all.layout->space_bytes(Space::Weights));
    const double rate =
        std::max(1.0, std::round(bytes / (c.link * all.flops / machine.flops_per_s) / 1e6)) * 1e6;
    device.load_bytes_per_s = device.store_bytes_per_s = rate;
    machine.load_bytes_per_s = machine.store_bytes_per_s = rate;
  }
  const Preparation chosen = prepare(model, options, {.device_memory = budget}, machine);
  std::vector<std::unique_ptr<Setting>> settings;
  size_t of_choice = 0;
  for (const size_t i : settings_to_measure(chosen)) {
    const Candidate& candidate = chosen.candidates[i];
    const bool is_choice = i == chosen.chosen;
    if (is_choice) of_choice = settings.size();
    TrainerOptions told = options;  // recomputes every block or none, where the choice may mix
    told.micro_batch_order = candidate.order;
    told.recompute = candidate.recompute;
    told.activations = candidate.activations;
    told.update = candidate.update;
    settings.push_back(std::make_unique<Setting>(
        model, is_choice ? chosen : prepare(model, told, {.device_memory = budget}, machine),
        device));
  }
  const RandomBatches data(model.config().vocabulary, c.batch_size, c.length, c.accumulation);
  for (auto& s : settings) s->warm_up(data.batches());
  for (size_t tries = 0; tries < 3 * num_rounds && rounds.num_steady() < num_rounds; ++tries) {
    rounds.take([&] {
      for (auto& s : settings) s->step(data.batches());
    });
  }
  Verdict verdict;
  for (const auto& s : settings) {
    const double error = s->candidate().seconds / s->measured_s(rounds) - 1;
    if (std::abs(error) > std::abs(verdict.worst_error)) verdict.worst_error = error;
  }
  const Setting& mine = *settings[of_choice];
  verdict.error = mine.candidate().seconds / mine.measured_s(rounds) - 1;
  verdict.ratio = ratio_to_best(mine, settings, rounds);
  fmt::print(
      "{:<15} {}x{}x{:<4} {:<4} {:>7.1f} {:>6} {:<14} {:>9.1f} {:>9.1f} {:>+7.1f} {:>+7.1f} "
      "{:>7.3f} {:>6}{} |",
      c.preset, c.accumulation, c.batch_size, c.length, c.clip ? "clip" : "",
      static_cast<double>(budget) / (1 << 20),
      c.link > 0 ? fmt::format("{:.0f}", device.load_bytes_per_s / 1e6) : "none",
      short_name(mine.candidate()), 1e3 * mine.candidate().seconds, 1e3 * mine.measured_s(rounds),
      100 * verdict.error, 100 * verdict.worst_error, verdict.ratio, rounds.num_steady(),
      rounds.num_steady() > 0 ? ""
      : c.link > 0            ? " LOUD"
                              : " *");
  fmt::print(" work {:.1f}/{:.1f} |", 1e3 * mine.predicted_work_s(machine),
             1e3 * mine.processor_s_of_step());
  for (const auto& s : settings) {
    fmt::print(" {}={:.1f}/{:.1f}", short_name(s->candidate()), 1e3 * s->candidate().seconds,
               1e3 * s->measured_s(rounds));
  }
  fmt::print("\n");
  std::fflush(stdout);
  return verdict;
}

void run_all_small(size_t rounds, size_t first, size_t last) {
  const MachineRates rates = measure_rates();
  const Machine& m = rates.machine;
  fmt::print(
      "\nmeasured; {:.4g} GFLOP/s products, {:.4g} attention, {:.4g} vectors; {:.1f} us a kernel; "
      "GB/s: {:.3g} memory, {:.3g} and "
      "{:.3g} copies, {:.3g} of all cores, {:.3g} update; {}\n",
      m.flops_per_s / 1e9, m.attention_flops_per_s / 1e9, m.vector_flops_per_s / 1e9,
      1e6 * m.kernel_s, m.device_bytes_per_s / 1e9, m.load_bytes_per_s / 1e9,
      m.store_bytes_per_s / 1e9, m.copy_bytes_per_s / 1e9, m.update_bytes_per_s / 1e9,
      rates.source());
  fmt::print("{:<15} {:<8} {:<4} {:>7} {:>6} {:<14} {:>9} {:>9} {:>7} {:>7} {:>7} {:>6} | {}\n",
             "model", "step", "", "MiB", "MB/s", "chosen", "predicted", "measured", "off %",
             "worst %", "x best", "steady", "ms, predicted/measured: work, each setting");
  CoresMeter meter(num_usable_cores());
  Verdict most;
  for (const SmallCase& c : small_cases().subspan(first, last - first)) {
    const Verdict v = run_small(c, meter, rounds);
    most.error = std::max(most.error, std::abs(v.error));
    most.worst_error = std::max(most.worst_error, std::abs(v.worst_error));
    most.ratio = std::max(most.ratio, v.ratio);
  }
  fmt::print(
      "at most: the choice's prediction off by {:.1f} %, any setting's by {:.1f} %; the choice "
      "{:.3f} x the best\n",
      100 * most.error, 100 * most.worst_error, most.ratio);
}

int run(int argc, char** argv) {
  bool large = true, small = true;
  size_t rounds = 5;
  size_t first = 0, last = small_cases().size();
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--large") {
      small = false;
    } else if (flag == "--small") {
      large = false;
    } else if (flag == "--case" && i + 1 < argc) {
      large = false;
      first = std::min(small_cases().size() - 1, std::strtoul(argv[++i], nullptr, 10));
      last = first + 1;
    } else if (flag == "--rounds" && i + 1 < argc) {
      rounds = std::strtoul(argv[++i], nullptr, 10);
    } else {
      throw ConfigError("no flag " + flag + "; there are --large, --small, --case I, --rounds N");
    }
  }
  const bool good = !large || run_all_large();
  if (small) run_all_small(rounds, first, last);
  return good ? 0 : 1;
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  return ebb::bench::exit_code_of("bench_choose", [&] { return ebb::bench::run(argc, argv); });
}

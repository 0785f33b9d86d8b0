// How long does it take to report a step: the sums of its times, which are computed after every
// step, and the trace (--trace)?
//
//   bench_trace [flags of Google Benchmark]
//
// Both are made between two steps, from times that the executor has anyway. They are measured for
// the plans of two models on a processor and one on a GPU. The roof of the sums adds the durations
// of all operations; bound and achieved are operations a second. The roof of the trace writes a
// file of as many bytes; bound and achieved are bytes a second. percent_of_step compares the time
// with the predicted step. The trace is read again, and every operation that takes time must be in
// it; the sums must be the length of the step.
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bench/choose_cases.h"
#include "bench/micro_benchmark.h"
#include "model_zoo/architecture.h"
#include "model_zoo/presets.h"
#include "scheduler/plan/simulate.h"
#include "scheduler/search/preparation.h"
#include "tools/chrome_trace.h"
#include "tools/spent_time.h"

namespace ebb::bench {
namespace {

constexpr size_t kMiB = size_t{1} << 20, kGiB = size_t{1} << 30;
constexpr Machine kTwoCores{.flops_per_s = 376e9,
                            .attention_flops_per_s = 149e9,
                            .device_bytes_per_s = 27e9,
                            .load_bytes_per_s = 25e9,
                            .store_bytes_per_s = 24e9,
                            .update_bytes_per_s = 37e9,
                            .shared_cores = true,
                            .copy_bytes_per_s = 21e9};

struct Case {
  const char* preset;
  MicroBatchShape shape;
  size_t chunk_bytes, device_bytes;
  Machine machine;
};
const Case kCases[] = {
    {"gpt-6x384-bytes", {.batch_size = 4, .length = 128}, kMiB, 24 * kMiB, kTwoCores},
    {"gpt2-bytes", {.batch_size = 8, .length = 256}, 8 * kMiB, 160 * kMiB, kTwoCores},
    {"gpt3-175b", {.batch_size = 8, .length = 2048}, 64 * kMiB, 80 * kGiB, kAssumedH200}};

/// A plan, and when its operations run by simulation.
struct PlannedStep {
  explicit PlannedStep(const Case& c)
      : model(create_model(find_preset(c.preset).config, c.shape, DType::BF16)),
        prepared(prepare(*model, {.chunk_bytes = c.chunk_bytes}, {.device_memory = c.device_bytes},
                         c.machine)),
        simulated(simulate(prepared.plan, prepared.trace, *prepared.layout, c.machine)) {}
  std::unique_ptr<const Model> model;
  Preparation prepared;
  Simulation simulated;
};

/// A file that is removed at the end.
struct TemporaryFile {
  explicit TemporaryFile(const std::string& name)
      : path(std::filesystem::temp_directory_path() / (name + std::to_string(getpid()))) {}
  ~TemporaryFile() { std::filesystem::remove(path); }
  const std::filesystem::path path;
};

/// Called after the loop of a benchmark.
void set_percent_of_step(benchmark::State& state, const PlannedStep& step, double amount) {
  const double seconds = amount / state.counters["achieved"];
  state.counters["percent_of_step"] = 100 * seconds / step.simulated.seconds;
}

void measure_sums(benchmark::State& state, const PlannedStep& step) {
  const std::vector<OpTime>& ops = step.simulated.ops;
  const double step_s = step.simulated.seconds;
  const auto num_operations = static_cast<double>(ops.size());
  double duration_s = 0;
  const auto add_durations = [&] {
    for (const OpTime& op : ops) duration_s += op.end_s - op.start_s;
    benchmark::DoNotOptimize(duration_s);
  };
  SpentTime spent;
  int64_t num_steps = 0;
  const auto add_step = [&] {
    spent += spent_time(step.prepared.plan, ops, step_s, 0);
    ++num_steps;
  };
  measure_against_roof(state, {num_operations, add_durations}, {num_operations, add_step});
  set_percent_of_step(state, step, num_operations);
  const double expected_s = static_cast<double>(num_steps) * step_s;
  if (std::abs(spent.total_s() - expected_s) > 1e-6 * expected_s) {
    fail(state, "the sums are not the length of the steps");
  }
}

size_t count_lines_with(const std::filesystem::path& path, std::string_view text) {
  size_t count = 0;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) count += line.find(text) != std::string::npos;
  return count;
}

void measure_trace(benchmark::State& state, const PlannedStep& step) {
  const Preparation& p = step.prepared;
  const TemporaryFile file("ebb-bench-trace"), copy("ebb-bench-copy");
  const auto write_steps = [&](uint64_t num_steps) {
    ChromeTrace trace(file.path);
    trace.begin("0000000000000000");
    for (uint64_t i = 1; i <= num_steps; ++i) {
      trace.add_step(p, step.simulated.ops, i, step.simulated.seconds);
    }
  };
  write_steps(1);
  const size_t header_bytes = std::filesystem::file_size(file.path);
  write_steps(2);
  const size_t step_bytes = std::filesystem::file_size(file.path) - header_bytes;
  const std::vector<char> text(step_bytes, 'x');
  uint64_t num_steps = 0;
  {
    ChromeTrace trace(file.path);
    trace.begin("0000000000000000");
    std::ofstream plain(copy.path, std::ios::binary);
    const auto write_plainly = [&] {
      plain.write(text.data(), static_cast<std::streamsize>(text.size()));
      plain.flush();
    };
    const auto add_step = [&] {
      trace.add_step(p, step.simulated.ops, ++num_steps, step.simulated.seconds);
    };
    const auto bytes = static_cast<double>(step_bytes);
    measure_against_roof(state, {bytes, write_plainly}, {bytes, add_step});
    set_percent_of_step(state, step, bytes);
    state.counters["bytes"] = bytes;
  }
  size_t num_events = 1;  // one event for the step itself
  for (const Op& op : p.plan.ops) num_events += !takes_no_time(op);
  if (count_lines_with(file.path, R"("ph":"X")") != num_steps * num_events) {
    fail(state, "the trace does not have every operation");
  }
}

void register_all(Arguments) {
  for (const Case& c : kCases) {
    const auto step = made_once<PlannedStep>(c);
    const std::string preset = c.preset;
    register_benchmark("sums/" + preset,
                       [=](benchmark::State& state) { measure_sums(state, step()); });
    register_benchmark("trace/" + preset,
                       [=](benchmark::State& state) { measure_trace(state, step()); });
  }
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  return ebb::bench::run_benchmarks(argc, argv, ebb::bench::register_all);
}

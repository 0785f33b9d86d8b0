#include "bench/micro_benchmark.h"

#include <cstdlib>
#include <vector>

#include "bench/exit_code.h"
#include "system/clock.h"

namespace ebb::bench {
namespace {

bool any_failed = false;

// Google Benchmark takes the last of several flags, so those of the user win.
constexpr const char* kDefaultFlags[] = {
    "--benchmark_repetitions=5",         "--benchmark_enable_random_interleaving=true",
    "--benchmark_min_time=0.2",          "--benchmark_display_aggregates_only=true",
    "--benchmark_counters_tabular=true",
};

}  // namespace

void measure_against_roof(benchmark::State& state, const Work& roof, const Work& kernel,
                          const std::function<void()>& before, const std::function<void()>& after) {
  double roof_s = 0, kernel_s = 0;
  for (auto iteration : state) {
    (void)iteration;
    double start_s = steady_now_s();
    roof.run();
    roof_s += steady_now_s() - start_s;
    if (before) before();
    start_s = steady_now_s();
    kernel.run();
    const double seconds = steady_now_s() - start_s;
    state.SetIterationTime(seconds);
    kernel_s += seconds;
    if (after) after();
  }
  const auto iterations = static_cast<double>(state.iterations());
  set_counters(state, roof.amount * iterations / roof_s, kernel.amount * iterations / kernel_s);
}

void set_counters(benchmark::State& state, double bound, double achieved) {
  state.counters["bound"] = bound;
  state.counters["achieved"] = achieved;
  state.counters["share"] = achieved / bound;
}

void fail(benchmark::State& state, const std::string& message) {
  any_failed = true;
  state.SkipWithError(message.c_str());
}

benchmark::internal::Benchmark* register_benchmark(
    const std::string& name, std::function<void(benchmark::State&)> function) {
  const auto guarded = [function = std::move(function)](benchmark::State& state) {
    try {
      function(state);
    } catch (const std::exception& error) {
      fail(state, error.what());
    }
  };
  return benchmark::RegisterBenchmark(name.c_str(), guarded)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

int64_t number_in(Arguments arguments, size_t index, int64_t otherwise) {
  if (index >= arguments.size()) return otherwise;
  char* end = nullptr;
  const int64_t number = std::strtoll(arguments[index], &end, 10);
  if (*end == '\0' && number >= 1) return number;
  throw ConfigError(std::string(arguments[index]) +
                    " is neither a number from 1 on nor a flag of Google Benchmark; see --help");
}

int run_benchmarks(int argc, char** argv, const std::function<void(Arguments)>& register_all) {
  std::vector<std::string> words = {argv[0]};
  words.insert(words.end(), std::begin(kDefaultFlags), std::end(kDefaultFlags));
  words.insert(words.end(), argv + 1, argv + argc);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  int count = static_cast<int>(pointers.size());
  benchmark::Initialize(&count, pointers.data());
  return exit_code_of(argv[0], [&] {
    register_all(Arguments(pointers).subspan(1, static_cast<size_t>(count) - 1));
    const bool any_ran = benchmark::RunSpecifiedBenchmarks() > 0;
    benchmark::Shutdown();
    return any_ran && !any_failed ? 0 : 1;
  });
}

}  // namespace ebb::bench

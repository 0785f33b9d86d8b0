// Shared code of the micro-benchmarks: default flags for Google Benchmark, and the comparison of a
// kernel with a roof.
//
// A roof is work that does only what limits the kernel: the same reads and writes without
// arithmetic, or multiply-adds on registers. One iteration runs the roof and then the kernel, so
// their ratio does not depend on how fast the machine happens to be. The time of the benchmark is
// that of the kernel alone. Its user counters are
//   bound     the work that the roof does in a second: floating-point operations, bytes, ...
//   achieved  the work that the kernel does in a second
//   share     achieved / bound
//
// The column CPU has the processor time of the main thread in roof and kernel together. The warning
// that the library was built as DEBUG is about Debian's package; it concerns the library's own
// loop.
//
// A benchmark whose result is wrong calls fail() or throws. The program then ends with 1.
#pragma once

#include <benchmark/benchmark.h>

#include <functional>
#include <memory>
#include <span>
#include <string>

namespace ebb::bench {

/// Some amount of work, and a function that does it once.
struct Work {
  double amount = 0;
  std::function<void()> run;
};

/// The loop of a benchmark. `before` and `after` run before and after each run of the kernel, and
/// their time is not counted; either may be empty.
void measure_against_roof(benchmark::State& state, const Work& roof, const Work& kernel,
                          const std::function<void()>& before = {},
                          const std::function<void()>& after = {});

/// Sets the counters bound, achieved and share.
void set_counters(benchmark::State& state, double bound, double achieved);

/// Skips the benchmark with this message.
void fail(benchmark::State& state, const std::string& message);

/// Registers a benchmark that measures its own time, as measure_against_roof() does.
benchmark::internal::Benchmark* register_benchmark(const std::string& name,
                                                   std::function<void(benchmark::State&)> function);

/// Returns a function that makes a T at its first call and returns the same T at every call. Google
/// Benchmark calls a benchmark many times, so the objects of a benchmark are made once, and only if
/// the benchmark runs.
template <class T, class... Arguments>
auto made_once(Arguments... arguments) {
  return [=, made = std::make_shared<std::unique_ptr<T>>()]() -> T& {
    if (!*made) *made = std::make_unique<T>(arguments...);
    return **made;
  };
}

/// The arguments that are not flags of Google Benchmark, without the program's name.
using Arguments = std::span<char* const>;
/// Argument `index` as a number, at least 1; `otherwise` where there are not so many arguments.
/// Throws ConfigError.
int64_t number_in(Arguments arguments, size_t index, int64_t otherwise);

/// Calls `register_all` and runs what it registers. Unless the user says otherwise, each benchmark
/// is repeated five times, in random order between the others, and the table shows the statistics
/// of the repetitions. Returns the exit code of the program.
int run_benchmarks(int argc, char** argv, const std::function<void(Arguments)>& register_all);

}  // namespace ebb::bench

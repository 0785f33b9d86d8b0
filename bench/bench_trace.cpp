// What does it cost to watch a step: the sums of where its time went (after every step), and the
// trace (--trace)?
//
//   bench_trace
//
// Both are made between two steps, from times that the executor has anyway. For a small model on a
// processor and a huge one on a GPU: processor time for each step, beside the predicted step. The
// trace is read again: every operation that takes time has to be in it.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bench/thread_times.h"
#include "model_zoo/architecture.h"
#include "model_zoo/presets.h"
#include "scheduler/plan/simulate.h"
#include "scheduler/run/trainer.h"
#include "tools/chrome_trace.h"
#include "tools/spent_time.h"

namespace ebb::bench {
namespace {

constexpr Machine kTwoCores{.flops_per_s = 376e9,
                            .attention_flops_per_s = 149e9,
                            .device_bytes_per_s = 27e9,
                            .load_bytes_per_s = 25e9,
                            .store_bytes_per_s = 24e9,
                            .update_bytes_per_s = 37e9,
                            .shared_cores = true,
                            .copy_bytes_per_s = 21e9};
constexpr Machine kH200{.flops_per_s = 720e12,
                        .load_bytes_per_s = 53e9,
                        .store_bytes_per_s = 53e9,
                        .update_bytes_per_s = 240e9};

struct Case {
  const char* preset;
  MicroBatchShape shape;
  size_t chunk_bytes, device_bytes;
  Machine machine;
};

size_t count(const std::string& path, std::string_view event) {
  size_t found = 0;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) found += line.find(event) != std::string::npos;
  return found;
}

/// The median of some rounds, of the processor's time.
template <class Body>
double processor_s(int num_rounds, const Body& body) {
  std::vector<double> times;
  for (int round = 0; round < num_rounds; ++round) {
    const double before = process_processor_s();
    body();
    times.push_back(process_processor_s() - before);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

bool measure(const Case& c) {
  constexpr int kSteps = 9;
  const auto model = create_model(find_preset(c.preset).config, c.shape, DType::BF16);
  const Preparation p =
      prepare(*model, {.chunk_bytes = c.chunk_bytes}, {.device_memory = c.device_bytes}, c.machine);
  const Simulation s = simulate(p.plan, p.trace, *p.layout, c.machine);
  SpentTime spent;
  const double sums_s =
      processor_s(kSteps, [&] { spent += spent_time(p.plan, s.ops, s.seconds, 0); });
  const std::string path = std::filesystem::temp_directory_path() / "ebb-bench-trace.json";
  double trace_s = 0;
  {
    ChromeTrace trace(path);
    uint64_t step = 0;
    trace_s = processor_s(kSteps, [&] { trace.add_step(p, s.ops, ++step, s.seconds); });
  }
  size_t num_timed = 0;
  for (const Op& op : p.plan.ops) num_timed += !takes_no_time(op);
  const size_t num_written = count(path, R"("ph":"X")");
  // A step is an event of its own.
  const bool complete = num_written == kSteps * (num_timed + 1);
  const bool whole = std::abs(spent.total_s() - kSteps * s.seconds) < 1e-6 * kSteps * s.seconds;
  fmt::print(
      "{}: {} operations, a step of {:.4g} s; sums {:.1f} us ({:.4f} % of the step), trace {:.2f} "
      "ms "
      "({:.3f} %), {:.2f} MiB a step{}{}\n",
      c.preset, p.plan.ops.size(), s.seconds, sums_s * 1e6, 100 * sums_s / s.seconds, trace_s * 1e3,
      100 * trace_s / s.seconds,
      static_cast<double>(std::filesystem::file_size(path)) / kSteps / (1 << 20),
      complete ? "" : "  NOT COMPLETE", whole ? "" : "  SUMS ARE WRONG");
  if (!complete) fmt::print("  {} events, {} operations\n", num_written, num_timed);
  std::filesystem::remove(path);
  return complete && whole;
}

}  // namespace
}  // namespace ebb::bench

int main() {
  using namespace ebb::bench;
  constexpr size_t kMiB = size_t{1} << 20, kGiB = size_t{1} << 30;
  const Case cases[] = {
      {"gpt-6x384-bytes", {.batch_size = 4, .length = 128}, kMiB, 24 * kMiB, kTwoCores},
      {"gpt2-bytes", {.batch_size = 8, .length = 256}, 8 * kMiB, 128 * kMiB, kTwoCores},
      {"gpt3-175b", {.batch_size = 8, .length = 2048}, 64 * kMiB, 80 * kGiB, kH200}};
  bool good = true;
  for (const Case& c : cases) good = measure(c) && good;
  return good ? 0 : 1;
}

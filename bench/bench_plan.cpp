// How long does planning take, and how close to its bound is the planned step of a model that is
// much larger than the device?
//
//   bench_plan [flags of Google Benchmark]
//
// make plan            A trace of some 100,000 accesses of chunks. The roof copies the finished
//                      plan, so it writes the same operations without finding them. Bound and
//                      achieved are operations a second.
// plan GPT-3 175B      A step of 16,384 tokens, recomputed by layer, on one GPU of 80 GiB, with and
//                      without clipping, with updates waited for or deferred to the next step.
//                      The time is that of planning; bound and achieved are seconds of the planned
//                      step, by lower_bound() and by simulation, and share is bound / achieved.
// choose GPT-3 175B    The choice between all settings for a step of 65,536 tokens. The roof plans
//                      the chosen settings alone. Bound and achieved are preparations a second.
//
// Every plan is validated before it is measured.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "bench/choose_cases.h"
#include "bench/gpt2_preset.h"
#include "bench/micro_benchmark.h"
#include "scheduler/plan/chunk_trace.h"
#include "scheduler/plan/simulate.h"
#include "scheduler/plan/validate.h"
#include "scheduler/search/choose.h"
#include "scheduler/search/preparation.h"
#include "system/clock.h"

namespace ebb::bench {
namespace {

/// Throws LogicError if the plan is wrong.
void check(const Plan& plan, const Trace& trace, const Layout& layout, const PlanOptions& options) {
  const std::vector<std::string> problems = validate(plan, trace, layout, options);
  if (!problems.empty()) throw LogicError("the plan is not valid: " + problems.front());
}

/// A stack of layers of one parameter each, forward and back, for some micro-batches. A parameter
/// is a chunk.
class DeepStack {
 public:
  DeepStack() {
    for (uint32_t k = 0; k < kMicroBatches; ++k) {
      for (uint32_t layer = 0; layer < kLayers; ++layer) add(Phase::Forward, k, layer);
      for (uint32_t layer = kLayers; layer-- > 0;) add(Phase::Backward, k, layer);
    }
    plan_ = make_plan(trace_, layout_, kOptions);
    check(plan_, trace_, layout_, kOptions);
  }

  void measure(benchmark::State& state) const {
    const auto copy = [this] { benchmark::DoNotOptimize(Plan(plan_)); };
    const auto plan = [this] { benchmark::DoNotOptimize(make_plan(trace_, layout_, kOptions)); };
    const auto num_operations = static_cast<double>(plan_.ops.size());
    measure_against_roof(state, {num_operations, copy}, {num_operations, plan});
    state.counters["operations"] = num_operations;
    state.counters["accesses"] =
        static_cast<double>(make_chunk_trace(trace_, layout_, true).uses.size());
  }

 private:
  static constexpr uint32_t kLayers = 1000, kMicroBatches = 25;
  static constexpr size_t kChunkBytes = size_t{64} << 20;
  inline static const PlanOptions kOptions{.num_blocks = 500, .update_after_norm = false};

  static Layout make_layout() {
    std::vector<ParameterInfo> infos;
    std::vector<ParameterId> order;
    for (uint32_t i = 0; i < kLayers; ++i) {
      infos.push_back({.name = "p", .shape = {static_cast<int64_t>(kChunkBytes / 2)}});
      order.push_back(i);
    }
    return Layout(std::move(infos), std::move(order), DType::BF16, DType::BF16, kChunkBytes);
  }
  void add(Phase phase, uint32_t micro_batch, uint32_t layer) {
    trace_.calls.push_back({.name = "layer",
                            .phase = phase,
                            .micro_batch = micro_batch,
                            .first_use = static_cast<uint32_t>(trace_.uses.size()),
                            .num_uses = 1,
                            .cost = {}});
    trace_.uses.push_back({layer, 0, true, phase == Phase::Backward});
  }

  const Layout layout_ = make_layout();
  Trace trace_;
  Plan plan_;
};

Gpt2 gpt3() { return Gpt2(find_gpt2_preset("gpt3-175b"), 8, 2048, DType::BF16); }

void measure_gpt3(benchmark::State& state, bool clips, UpdateOrder update) {
  const Gpt2 model = gpt3();
  const TrainerOptions options{.schedule = {.recompute = kRecomputeEach, .update = update},
                               .max_grad_norm = clips ? 1.0f : 0.0f};
  Preparation p;
  for (auto iteration : state) {
    (void)iteration;
    const double start_s = steady_now_s();
    p = prepare(model, options, {.device_memory = size_t{80} << 30});
    state.SetIterationTime(steady_now_s() - start_s);
  }
  check(p.plan, p.trace, *p.layout,
        {.num_blocks = p.num_blocks, .update_after_norm = clips, .schedule = p.schedule});
  const Bound bound = lower_bound(p.trace, *p.layout, p.plan, kAssumedH200, clips);
  const Simulation step = simulate(p.plan, p.trace, *p.layout, kAssumedH200);
  state.counters["bound"] = bound.seconds;
  state.counters["achieved"] = step.seconds;
  state.counters["share"] = bound.seconds / step.seconds;
  state.counters["operations"] = static_cast<double>(p.plan.ops.size());
  state.SetLabel(fmt::format(
      "{}; {} of {} blocks, loads {:.1f} GB, stores {:.1f} GB, stalls {:.2f} s", bound.bound_by,
      p.num_blocks, p.full_blocks, 1e-9 * static_cast<double>(p.plan.loaded_bytes),
      1e-9 * static_cast<double>(p.plan.stored_bytes), step.stall_s));
}

/// Requests every setting of the schedule.
ScheduleRequest request_of(const Schedule& schedule) {
  return {.micro_batch_order = schedule.micro_batch_order,
          .recompute = schedule.recompute,
          .activations = schedule.activations,
          .update = schedule.update,
          .deferred_share = schedule.deferred_share,
          .gradient_buffers = schedule.gradient_buffers,
          .speculated_chunks = schedule.speculated_chunks,
          .resident_chunks = schedule.resident_chunks,
          .device_updates = schedule.device_updates};
}

void measure_choice(benchmark::State& state) {
  const Gpt2 model = gpt3();
  const Budgets budgets{.device_memory = size_t{128} << 30};
  const auto prepare_with = [&](const TrainerOptions& options) {
    return prepare(model, options, budgets, kAssumedH200);
  };
  const TrainerOptions open{.gradient_accumulation = 4};
  const Preparation chosen = prepare_with(open);
  TrainerOptions fixed = open;
  fixed.schedule = request_of(chosen.schedule);
  measure_against_roof(state, {1, [&] { benchmark::DoNotOptimize(prepare_with(fixed)); }},
                       {1, [&] { benchmark::DoNotOptimize(prepare_with(open)); }});
  if (prepare_with(fixed).plan.ops.size() != chosen.plan.ops.size()) {
    fail(state, "the chosen settings give another plan");
  }
  state.counters["operations"] = static_cast<double>(chosen.plan.ops.size());
  state.SetLabel(fmt::format("{} candidates; {}, recompute {}, updates {}",
                             chosen.candidates.size(), name_of(chosen.schedule.micro_batch_order),
                             name_of(chosen.schedule.recompute, chosen.num_layers),
                             name_of(chosen.schedule.update)));
}

void register_all(Arguments) {
  const auto stack = made_once<DeepStack>();
  register_benchmark("make plan", [=](benchmark::State& state) { stack().measure(state); });
  for (bool clips : {false, true}) {
    for (UpdateOrder update : {UpdateOrder::Wait, UpdateOrder::Overlap}) {
      const std::string name = fmt::format("plan GPT-3 175B/{}/{}", clips ? "clipped" : "unclipped",
                                           update == UpdateOrder::Wait ? "wait" : "overlap");
      register_benchmark(name,
                         [=](benchmark::State& state) { measure_gpt3(state, clips, update); });
    }
  }
  register_benchmark("choose GPT-3 175B", measure_choice);
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  return ebb::bench::run_benchmarks(argc, argv, ebb::bench::register_all);
}

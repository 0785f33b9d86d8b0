#include "bench/executor_cost.h"

#include <pthread.h>
#include <time.h>

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "bench/core_rates.h"
#include "bench/forwarding_device.h"
#include "device/planes.h"
#include "scheduler/run/executor.h"
#include "scheduler/search/memory_sizes.h"
#include "system/clock.h"

namespace ebb::bench {
namespace {

double seconds_on(clockid_t clock) {
  timespec used{};
  clock_gettime(clock, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

/// The work of a thread in map(), and its clock after the last call of map().
struct Mapping {
  double seconds = 0;
  uint32_t count = 0;
  std::optional<clockid_t> clock = {};
};

/// Of the thread that made the blocks, and of the other one.
struct Mappings {
  Mapping program, copy;
};

class TimedBlocks final : public Blocks {
 public:
  TimedBlocks(std::unique_ptr<Blocks> blocks, Mappings& mappings)
      : blocks_(std::move(blocks)), mappings_(mappings) {}
  std::byte* reserve(size_t bytes) override { return blocks_->reserve(bytes); }
  void map(uint32_t block, std::byte* address, Stream& user) override {
    const bool is_program = std::this_thread::get_id() == program_thread_;
    Mapping& mapping = is_program ? mappings_.program : mappings_.copy;
    if (!mapping.clock) pthread_getcpuclockid(pthread_self(), &mapping.clock.emplace());
    const double start_s = thread_cpu_s();
    blocks_->map(block, address, user);
    mapping.seconds += thread_cpu_s() - start_s;
    ++mapping.count;
  }
  bool keep_addresses() const override { return blocks_->keep_addresses(); }
  bool lies_at(uint32_t block, const std::byte* address) const override {
    return blocks_->lies_at(block, address);
  }
  size_t block_bytes() const override { return blocks_->block_bytes(); }
  uint32_t num_blocks() const override { return blocks_->num_blocks(); }

 private:
  std::unique_ptr<Blocks> blocks_;
  Mappings& mappings_;
  const std::thread::id program_thread_ = std::this_thread::get_id();
};

class TimedDevice final : public ForwardingDevice {
 public:
  explicit TimedDevice(const DeviceOptions& options) : ForwardingDevice(create_device(options)) {}
  std::unique_ptr<Blocks> create_blocks(size_t block_bytes, uint32_t num_blocks) override {
    return std::make_unique<TimedBlocks>(ForwardingDevice::create_blocks(block_bytes, num_blocks),
                                         mappings);
  }
  Mappings mappings;
};

/// The optimizer's part of a plan: updates sleep, and all other operations do nothing.
class SleepingWork final : public ChunkWork {
 public:
  explicit SleepingWork(double update_s) : update_s_(update_s) {}
  void submit_round(Stream&, ChunkIndex) override {}
  void submit_partial_norms(Stream&, ChunkIndex) override {}
  void submit_update(Stream&, ChunkIndex) override {}
  void norm() override {}
  void update(ChunkIndex, BufferIndex, bool) override { sleep_until(steady_now_s() + update_s_); }
  void speculate(ChunkIndex, BufferIndex, bool) override {
    sleep_until(steady_now_s() + update_s_);
  }
  Cost update_cost(ChunkIndex) const override { return {}; }

 private:
  double update_s_;
};

double seconds_of_update(const Layout& layout, double update_bytes_per_s) {
  if (update_bytes_per_s == 0) return 0;
  return static_cast<double>(layout.chunk_elements()) *
         update_bytes_per_parameter(layout.weight_type(), layout.gradient_type()) /
         update_bytes_per_s;
}

/// An executor with the parts of a trainer that it needs.
class Replay {
 public:
  Replay(const Preparation& prepared, const DeviceOptions& options, double update_bytes_per_s)
      : prepared_(prepared),
        device_(options),
        spaces_(device_, *prepared.layout, prepared.num_blocks, prepared.trace.arena_bytes),
        home_(device_, *prepared.layout, state_planes(prepared.options.dtype).first(1),
              home_options(prepared.plan)),
        work_(seconds_of_update(*prepared.layout, update_bytes_per_s)),
        compute_(device_.create_stream(StreamKind::Compute)),
        executor_(device_, *compute_, *prepared.layout, spaces_, home_, work_,
                  static_cast<uint32_t>(prepared.plan.ops.size())) {
    for (const Plan* plan : {&prepared.initialise_plan, &prepared.warm_up_plan}) {
      if (plan->ops.empty()) continue;
      executor_.begin(no_calls_, *plan);
      executor_.finish();
    }
  }

  void step() {
    executor_.begin(prepared_.trace, prepared_.plan);
    for (const Call& call : prepared_.trace.calls) {
      executor_.begin_call(call.name, call.phase, prepared_.trace.uses_of(call));
      compute_->submit(call.cost, [] {});
      executor_.end_call();
    }
    executor_.finish();
  }
  ExecutorCost measured_step() {
    auto& [program, copy] = device_.mappings;
    program = {.clock = program.clock}, copy = {.clock = copy.clock};
    const double program_before_s = thread_cpu_s(), copy_before_s = copy_thread_s();
    step();
    return {cost_of(program, thread_cpu_s() - program_before_s),
            cost_of(copy, copy_thread_s() - copy_before_s)};
  }

 private:
  static ThreadCost cost_of(const Mapping& mapping, double all_s) {
    return {
        .own_s = all_s - mapping.seconds, .map_s = mapping.seconds, .num_mapped = mapping.count};
  }
  /// 0 where the copy thread has mapped nothing yet.
  double copy_thread_s() const {
    const auto clock = device_.mappings.copy.clock;
    return clock ? seconds_on(*clock) : 0;
  }

  const Preparation& prepared_;
  const Trace no_calls_ = {};
  TimedDevice device_;
  DeviceSpaces spaces_;
  Home home_;
  SleepingWork work_;
  std::unique_ptr<Stream> compute_;
  Executor executor_;
};

ThreadCost middle(const std::vector<ExecutorCost>& steps, ThreadCost ExecutorCost::*thread) {
  const auto median_of = [&](double ThreadCost::*seconds) {
    std::vector<double> values;
    for (const ExecutorCost& step : steps) values.push_back((step.*thread).*seconds);
    return median(std::move(values));
  };
  ThreadCost cost = steps.back().*thread;
  cost.own_s = median_of(&ThreadCost::own_s);
  cost.map_s = median_of(&ThreadCost::map_s);
  return cost;
}

}  // namespace

ExecutorCost measure_executor(const Preparation& prepared, const DeviceOptions& device,
                              double update_bytes_per_s) {
  constexpr int kWarmUps = 2, kSteps = 7;
  Replay replay(prepared, device, update_bytes_per_s);
  for (int i = 0; i < kWarmUps; ++i) replay.step();
  std::vector<ExecutorCost> steps;
  for (int i = 0; i < kSteps; ++i) steps.push_back(replay.measured_step());
  ExecutorCost cost{middle(steps, &ExecutorCost::program), middle(steps, &ExecutorCost::copy)};
  for (const Op& op : prepared.plan.ops) {
    ++(is_of_copy_thread(op) ? cost.copy : cost.program).num_operations;
  }
  return cost;
}

}  // namespace ebb::bench

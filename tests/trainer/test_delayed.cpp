// Delayed updates: what exactly they compute, and that this does not depend on the schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cpu_adam/adamw.h"
#include "cpu_adam/gradient_norm.h"
#include "device/errors.h"
#include "system/thread_team.h"
#include "tests/trainer/checkpoint_cases.h"
#include "tests/trainer/identity.h"

namespace ebb::test {
namespace {

constexpr double kRate = 1e-2;
constexpr uint64_t kFirstSeed = 70;

/// Computes gradients without delay.
class Gradients {
 public:
  Gradients(const Model& model, const TrainingCase& run, uint32_t loss_scale) : run_(run) {
    TrainerOptions options = run.options();
    options.schedule = {};
    options.delayed_updates = false;
    options.adam.beta1 = 0;
    options.max_grad_norm = 0;
    options.initial_loss_scale = loss_scale;
    prepared_ = prepare(model, options, {.device = {.num_threads = 1}});
    device_ = create_case_device(prepared_, run);
    trainer_ = std::make_unique<Trainer>(model, *device_, prepared_);
  }

  Values32 weights() { return masters_of(*trainer_); }
  const Layout& layout() const { return trainer_->layout(); }

  /// The gradients at these weights for the data of a step, and its loss and norm.
  Values32 at(const Values32& weights, uint32_t step, StepResult& result) {
    for (const auto& [name, values] : weights) trainer_->write_parameter(name, values);
    const Data data(run_.model, run_.length, run_.accumulation, kFirstSeed + step);
    result = trainer_->step(data.micro_batches(), 0);
    return momenta_of(*trainer_);
  }

 private:
  const TrainingCase run_;
  Preparation prepared_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Trainer> trainer_;
};

/// One update of all parameters in fp32.
void update(Values32& masters, Values32& momenta, Values32& variances, const Values32& gradients,
            const Layout& layout, const AdamWStep& step) {
  ThreadTeam team(1);
  for (ParameterId id = 0; id < layout.num_parameters(); ++id) {
    const ParameterInfo& info = layout.parameter(id);
    std::vector<float>& master = masters.at(info.name);
    momenta[info.name].resize(master.size());
    variances[info.name].resize(master.size());
    Planes planes{.gradient = reinterpret_cast<const std::byte*>(gradients.at(info.name).data())};
    planes[0] = reinterpret_cast<std::byte*>(master.data());
    planes[1] = reinterpret_cast<std::byte*>(momenta.at(info.name).data());
    planes[2] = reinterpret_cast<std::byte*>(variances.at(info.name).data());
    adamw_update(team, planes, std::ssize(master), step, info.decay ? 1 : 0,
                 info.learning_rate_factor);
  }
}

/// Trains with a flush before step `flushed`. Returns whether losses, norms and masters are those
/// of this definition. The gradient of a step is that of the weights before the update of the step
/// before, except in step `up_to_date`, where it is that of the weights after it. All updates are
/// made in their order; a skipped step has none. `num_skipped` gets the number of these.
bool is_delayed(const TrainingCase& run, uint32_t flushed, uint32_t up_to_date,
                uint32_t loss_scale = kInitialLossScale, uint64_t* num_skipped = nullptr) {
  const Gpt2 model(run.model, kMicroBatchSize, run.length, run.dtype);
  Preparation prepared = prepare_case(model, run);
  prepared.options.initial_loss_scale = loss_scale;
  const auto device = create_case_device(prepared, run);
  Trainer trainer(model, *device, prepared);
  Gradients gradients(model, run, loss_scale);
  Values32 now = gradients.weights(), before = now, momenta, variances;
  bool is_same = true;
  for (uint32_t step = 0; step < run.num_steps; ++step) {
    if (step == flushed) trainer.flush();
    if (step == up_to_date) before = now;
    const Data data(run.model, run.length, run.accumulation, kFirstSeed + step);
    const StepResult result = trainer.step(data.micro_batches(), kRate);
    StepResult expected;
    const Values32 gradient = gradients.at(before, step, expected);
    is_same = is_same && result.loss == expected.loss && result.skipped == expected.skipped &&
              (result.skipped || result.grad_norm == expected.grad_norm);
    before = now;
    if (result.skipped) continue;
    update(now, momenta, variances, gradient, gradients.layout(),
           {.learning_rate = kRate,
            .t = trainer.num_updates(),
            .gradient_scale = clip_scale(expected.grad_norm, prepared.options.max_grad_norm)});
  }
  if (num_skipped != nullptr) *num_skipped = trainer.num_skipped();
  trainer.visit_parameters([&](std::string_view name, const Shape&, std::span<const float> values) {
    is_same = is_same && std::ranges::equal(values, now.at(std::string(name)));
  });
  return is_same;
}

TEST(Delayed, AGradientIsThatOfWeightsOneUpdateOlder) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    for (const bool clip : {true, false}) {
      const TrainingCase run{.dtype = dtype,
                             .clip = clip,
                             .accumulation = 2,
                             .memory = Memory::Smallest,
                             .num_steps = 5,
                             .delayed_updates = true};
      EXPECT_TRUE(is_delayed(run, 3, 3)) << to_string(run);
    }
  }
}

/// The first steps overflow.
TEST(Delayed, ASkippedStepHasNoUpdate) {
  uint64_t num_skipped = 0;
  EXPECT_TRUE(is_delayed({.dtype = DType::F16, .num_steps = 10, .delayed_updates = true},
                         UINT32_MAX, UINT32_MAX, kLargestLossScale, &num_skipped));
  EXPECT_GT(num_skipped, 0u);
  EXPECT_LT(num_skipped, 8u);
}

/// Fails the n-th copy of a run. The state is then that before the step, with all updates.
TEST(Delayed, AStepThatThrowsLeavesTheStateBeforeIt) {
  const TrainingCase run{.memory = Memory::Smallest, .delayed_updates = true};
  const Gpt2 model(run.model, kMicroBatchSize, run.length, run.dtype);
  const Preparation prepared = prepare_case(model, run);
  uint64_t num_copies = 0, fails_at = UINT64_MAX;
  const auto device = create_device(
      {.profile = {.num_threads = 1},
       .memory_bytes = prepared.ledger.total(Tier::Device),
       .fault = [&](FaultSite at) { return at == FaultSite::Copy && num_copies++ == fails_at; }});
  /// Returns the hash after so many steps, or after the step that throws, and the steps before it.
  const auto hash_after = [&](uint32_t num_steps, uint32_t& step) {
    num_copies = 0;
    Trainer trainer(model, *device, prepared);
    try {
      for (step = 0; step < num_steps; ++step) {
        const Data data(run.model, run.length, 1, kFirstSeed + step);
        trainer.step(data.micro_batches(), kRate);
      }
    } catch (const DeviceError&) {
    }
    return trainer.state_hash();
  };
  constexpr uint32_t kSteps = 3;
  std::vector<uint64_t> hashes;
  uint32_t step = 0;
  for (uint32_t s = 0; s <= kSteps; ++s) hashes.push_back(hash_after(s, step));
  const uint64_t of_run = num_copies;
  uint32_t num_known = 0;
  for (uint64_t i = 1; i <= 12; ++i) {
    fails_at = i * of_run / 13;
    try {
      const uint64_t hash = hash_after(kSteps, step);
      EXPECT_EQ(hash, hashes[step]) << fails_at;
      ++num_known;
    } catch (const LogicError&) {  // not all delayed updates were made
    }
  }
  EXPECT_GT(num_known, 6u);
}

TEST(PlantedDelayed, AGradientOfOtherWeightsIsFound) {
  TrainingCase run{.memory = Memory::Smallest, .num_steps = 4, .delayed_updates = true};
  constexpr uint32_t kNever = UINT32_MAX;
  EXPECT_FALSE(is_delayed(run, kNever, 2));
  EXPECT_FALSE(is_delayed(run, 2, kNever));
  EXPECT_TRUE(is_delayed(run, kNever, kNever));
  run.delayed_updates = false;
  EXPECT_FALSE(is_delayed(run, kNever, kNever));
}

/// All schedules that delayed updates can have.
void check_schedules(IdentityCheck& check, TrainingCase run) {
  run.delayed_updates = true;
  for (const bool clip : {true, false}) {
    run.clip = clip;
    run.memory = Memory::Smallest;
    run.num_pieces = 4;
    check.run(run);
    run.order = MicroBatchOrder::Vertical;
    run.activations = ActivationPlacement::Offload;
    run.recompute = kRecomputeEach;
    run.num_threads = 2;
    check.run(run);
    run.memory = Memory::Between;
    run.num_pieces = 9;
    check.run(run);
  }
}

TEST(Delayed, BitsDoNotDependOnTheSchedule) {
  IdentityCheck check;
  for (const DType dtype : {DType::BF16, DType::F16, DType::F32}) {
    check_schedules(check, {.dtype = dtype, .accumulation = 2, .num_steps = 4});
  }
}

/// Then each step computes with all updates.
TEST(Delayed, AnEvaluationAfterEachStepGivesTheBitsWithoutDelay) {
  TrainingCase run{.memory = Memory::Smallest, .evaluation_batches = 1};
  const Outcome exact = train(run).outcome;
  run.delayed_updates = true;
  EXPECT_EQ(to_string(train(run).outcome), to_string(exact));
}

TEST(Delayed, BitsDoNotDependOnTheRanks) {
  IdentityCheck check;
  for (const uint32_t num_machines : {1u, 3u}) {
    check_schedules(check, {.accumulation = 6,
                            .num_steps = 4,
                            .num_ranks = 3,
                            .num_machines = num_machines,
                            .groups = 3});
  }
  check.run({.accumulation = 6,
             .memory = Memory::Smallest,
             .num_steps = 4,
             .num_ranks = 3,
             .sums_on_devices = true,
             .delayed_updates = true,
             .groups = 3});
}

TEST(Delayed, BitsDoNotDependOnTheRanksIfSumsAreRounded) {
  IdentityCheck check;
  for (const bool on_devices : {false, true}) {
    check.run({.accumulation = 4,
               .memory = Memory::Smallest,
               .num_steps = 4,
               .num_ranks = 3,
               .sums_on_devices = on_devices,
               .delayed_updates = true,
               .group_dtype = DType::BF16});
  }
}

/// More ranks than chunks: some make no update, and still compute with new weights.
TEST(Delayed, ARankMayOwnNoChunk) {
  IdentityCheck check;
  check.run({.accumulation = 4,
             .num_pieces = 64,
             .num_steps = 4,
             .num_ranks = 4,
             .delayed_updates = true,
             .model = tiny_gpt(),
             .length = 16});
}

/// Few runs for ThreadSanitizer.
TEST(DelayedRaces, ThereAreNone) {
  IdentityCheck check;
  for (const uint32_t num_machines : {1u, 2u}) {
    check.run({.accumulation = 2,
               .memory = Memory::Smallest,
               .num_threads = 2,
               .order = MicroBatchOrder::Vertical,
               .num_steps = 3,
               .num_ranks = 2,
               .num_machines = num_machines,
               .delayed_updates = true});
  }
}

TEST(Delayed, OtherResultsThanWithoutDelay) {
  TrainingCase run{.num_steps = 3};
  const Outcome exact = train(run).outcome;
  run.delayed_updates = true;
  const Outcome delayed = train(run).outcome;
  EXPECT_EQ(delayed.losses[0], exact.losses[0]);
  EXPECT_NE(delayed.losses[1], exact.losses[1]);
  EXPECT_NE(delayed.hash, exact.hash);
}

TEST(Delayed, OtherOrdersOfUpdatesAreRefused) {
  for (const UpdateOrder update : {UpdateOrder::Wait, UpdateOrder::Speculate}) {
    EXPECT_THROW(train({.update = update, .delayed_updates = true}), ConfigError);
  }
  for (const Between between : {Between::State, Between::Weights}) {
    EXPECT_THROW(train({.between = between, .delayed_updates = true}), ConfigError);
  }
}

}  // namespace
}  // namespace ebb::test

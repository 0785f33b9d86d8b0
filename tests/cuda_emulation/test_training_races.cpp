// Training on the emulated GPU under ThreadSanitizer: a few runs, on schedules in which most
// streams synchronize, and runs with a missing wait.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/cuda_emulation/emulated_device.h"
#include "tests/trainer/checkpoint_cases.h"
#include "tests/trainer/on_gpu.h"
#include "tests/trainer/planted.h"

namespace ebb::test {
namespace {

class EmulatedRaces : public OnGpu {};

/// What copies from and to a home need if it is not pinned.
size_t staging_bytes(const TrainingCase& run) {
  const Gpt2 model(run.model, kMicroBatchSize, run.length, run.dtype);
  return prepare_case(model, run).ledger.bytes("staging buffers", Tier::Host);
}

TrainingCase with_tiny_model(TrainingCase run) {
  run.device = DeviceKind::Cuda;
  run.model = {
      .vocabulary = 97, .max_positions = 8, .channels = 64, .num_layers = 3, .num_heads = 2};
  run.length = 8;
  run.num_steps = 2;
  return run;
}

TEST_F(EmulatedRaces, ThereAreNone) {
  const Outcome clipped = train(with_tiny_model({})).outcome;
  emulation::settings().full_queue = emulation::FullQueue::BlocksDriver;
  EXPECT_EQ(train(with_tiny_model({.memory = Memory::Smallest, .between = Between::State})).outcome,
            clipped);
  EXPECT_EQ(train(with_tiny_model(
                      {.memory = Memory::Smallest, .activations = ActivationPlacement::Offload}))
                .outcome,
            clipped);
  const Outcome plain = train(with_tiny_model({.clip = false, .accumulation = 2})).outcome;
  EXPECT_EQ(train(with_tiny_model({.clip = false,
                                   .accumulation = 2,
                                   .memory = Memory::Smallest,
                                   .order = MicroBatchOrder::Vertical,
                                   .between = Between::Weights}))
                .outcome,
            plain);
}

/// Two ranks, each with a device on the same GPU.
TEST_F(EmulatedRaces, RanksHaveTheBitsOfOne) {
  for (const bool clip : {true, false}) {
    const Outcome one = train(with_tiny_model({.clip = clip, .accumulation = 2})).outcome;
    TrainingCase two = with_tiny_model({.clip = clip,
                                        .accumulation = 2,
                                        .memory = Memory::Smallest,
                                        .order = MicroBatchOrder::Vertical,
                                        .num_ranks = 2});
    EXPECT_EQ(train(two).outcome, one);
    two.sums_on_devices = true;
    EXPECT_EQ(train(two).outcome, one);
    two.between = Between::State;
    EXPECT_EQ(train(two).outcome, one);
  }
}

/// Kernels on the store stream round the sums of groups.
TEST_F(EmulatedRaces, RoundedSumsHaveTheBitsOfOne) {
  const TrainingCase one =
      with_tiny_model({.accumulation = 2, .groups = 2, .group_dtype = DType::BF16});
  const Outcome rounded = train(one).outcome;
  EXPECT_NE(train(with_tiny_model({.accumulation = 2})).outcome, rounded);
  TrainingCase two = one;
  two.memory = Memory::Smallest;
  two.order = MicroBatchOrder::Vertical;
  two.num_ranks = 2;
  EXPECT_EQ(train(two).outcome, rounded);
  two.sums_on_devices = true;
  EXPECT_EQ(train(two).outcome, rounded);
}

/// Four ranks on two machines. The processor or the GPU adds sums to the running sum, which is in
/// pinned memory or not.
TEST_F(EmulatedRaces, ChainedSumsHaveTheBitsOfOne) {
  const TrainingCase one = with_tiny_model({.accumulation = 4});
  const Outcome plain = train(one).outcome;
  TrainingCase four = one;
  four.memory = Memory::Smallest;
  four.num_ranks = 4;
  four.num_machines = 2;
  four.chains_sums = true;
  EXPECT_EQ(train(four).outcome, plain);
  four.sums_on_devices = true;
  EXPECT_EQ(train(four).outcome, plain);
  four.pinned_bytes = size_t{3} << 20;
  EXPECT_GT(staging_bytes(four), 0u);
  EXPECT_EQ(train(four).outcome, plain);
}

/// Each rank loads a part of the weights from host memory, pinned or not, from a fetch slot, or
/// from the device of their owner.
TEST_F(EmulatedRaces, SplitLoadsHaveTheBitsOfOne) {
  const TrainingCase one = with_tiny_model({.accumulation = 4});
  const Outcome plain = train(one).outcome;
  TrainingCase run = one;
  run.memory = Memory::Smallest;
  run.order = MicroBatchOrder::Vertical;
  run.num_ranks = 2;
  run.splits_loads = true;
  EXPECT_EQ(train(run).outcome, plain);
  TrainingCase staged = run;
  staged.pinned_bytes = size_t{2} << 20;
  EXPECT_GT(staging_bytes(staged), 0u);
  EXPECT_EQ(train(staged).outcome, plain);
  TrainingCase far = run;
  far.num_ranks = 4;
  far.num_machines = 2;
  EXPECT_EQ(train(far).outcome, plain);
  run.between = Between::State;
  run.sums_on_devices = true;
  EXPECT_EQ(train(run).outcome, plain);
}

/// The loads of a step and the updates of the step before access different copies of the weights.
TEST_F(EmulatedRaces, DelayedUpdatesHaveTheBitsOfOne) {
  TrainingCase run = with_tiny_model({.accumulation = 2, .num_steps = 3, .delayed_updates = true});
  const Outcome delayed = train(run).outcome;
  run.memory = Memory::Smallest;
  EXPECT_EQ(train(run).outcome, delayed);
  run.num_ranks = 2;
  EXPECT_EQ(train(run).outcome, delayed);
}

/// All parameters are in one chunk, so rank 1 owns none, and has no state on its device.
TEST_F(EmulatedRaces, ARankMayOwnNoChunk) {
  const TrainingCase one = with_tiny_model({.accumulation = 2, .num_pieces = 64});
  TrainingCase two = one;
  two.between = Between::State;
  two.num_ranks = 2;
  two.sums_on_devices = true;
  const Gpt2 model(two.model, kMicroBatchSize, two.length, two.dtype);
  ASSERT_EQ(prepare_case(model, two, 1).plan.count(&ChunkRecord::is_on_owner), 1u);
  EXPECT_EQ(train(two).outcome, train(one).outcome);
}

// ---- Planted: kernels that do not wait for two of the chunks they read --------------------------

/// Exits with 0 if the step has the right bits.
[[noreturn]] void run_race(bool wait) {
  emulation::settings().granularity = size_t{64} << 10;  // the child process has default settings
  TrainingCase run = with_tiny_model({});
  run.num_steps = 1;
  const Gpt2 gpt(run.model, kMicroBatchSize, run.length, run.dtype);
  LateModel model(gpt);
  const Preparation good = prepare_case(model, run);
  const Preparation planted = wait ? good : without_waits(good, 1);
  model.pause_ms = 100;
#if defined(__SANITIZE_THREAD__)
  train(model, planted, run);
  std::exit(0);  // the sanitizer replaces this exit code by its own
#else
  const Outcome expected = train(model, good, run).outcome;
  // If a kernel had to wait for a core, the copy may already be done without the wait. So the test
  // tries slower copies.
  for (const double bytes_per_s : {1e6, 3e5, 1e5}) {
    emulation::settings().copy_bytes_per_s = bytes_per_s;
    if (train(model, planted, run).outcome != expected) std::exit(1);
    if (wait) break;
  }
  std::exit(0);
#endif
}

/// ThreadSanitizer reports the race. Without it, the weights are poisoned or a running copy has no
/// block, which gives other bits or a fault.
TEST(EmulatedRacesDeathTest, AMissingWaitIsFound) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
#if defined(__SANITIZE_THREAD__)
  EXPECT_EXIT(run_race(false), testing::ExitedWithCode(66), "data race");
#else
  const auto is_found = [](int status) { return status != 0; };
  EXPECT_EXIT(run_race(false), is_found, "");
#endif
  EXPECT_EXIT(run_race(true), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace ebb::test

// Failures in a step on the emulated GPU: NaN, wrong data, and copies, launches and calls that
// fail. The step throws the right error, nothing hangs and nothing leaks.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <thread>
#include <utility>

#include "tests/cuda_emulation/emulated_device.h"
#include "tests/cuda_emulation/refused_steps.h"
#include "tests/error_of.h"
#include "tests/trainer/fault_drill.h"
#include "tests/trainer/on_gpu.h"

namespace ebb::test {
namespace {

class EmulatedStep : public OnGpu {};

// ---- Memory -------------------------------------------------------------------------------------

/// This includes streams, events and blocks.
TEST_F(EmulatedStep, TakesNothingFromTheGpu) {
  const TrainingCase run =
      on_gpu({.accumulation = 2, .memory = Memory::Between, .between = Between::State});
  CaseRun training(run);
  const emulation::Live before = emulation::live();
  EXPECT_EQ(before.device_bytes, training.prepared().ledger.total(Tier::Device));
  training.train(0, 1);
  EXPECT_EQ(emulation::live(), before);
  training.train(1, 3);
  EXPECT_EQ(emulation::live(), before);
}

// ---- Numbers ------------------------------------------------------------------------------------

void spoil(Trainer& trainer, std::string_view name) {
  std::vector<float> values = trainer.read_parameter(name);
  values[values.size() / 2] = std::numeric_limits<float>::quiet_NaN();
  trainer.write_parameter(name, values);
}

constexpr std::string_view kSpoiled = "h.1.mlp.c_fc.weight";

/// This includes chunks whose device update was submitted before the norm was known.
TEST_F(EmulatedStep, ThatHasNoNormChangesNothing) {
  for (const Between between : {Between::Nothing, Between::State}) {
    const TrainingCase run = on_gpu({.memory = Memory::Smallest, .between = between});
    CaseRun with(run), without(run);
    with.train(0, 1);
    without.train(0, 1);
    const std::vector<float> good = with.trainer().read_parameter(kSpoiled);
    spoil(with.trainer(), kSpoiled);
    const uint64_t before = with.trainer().state_hash();
    with.train(1, 2);
    EXPECT_EQ(with.trainer().num_skipped(), 1u);
    EXPECT_EQ(with.trainer().state_hash(), before);
    with.trainer().write_parameter(kSpoiled, good);
    with.train(2, 3);
    without.train(2, 3);
    EXPECT_EQ(with.outcome().hash, without.outcome().hash);
  }
}

TEST_F(EmulatedStep, ThatHasNoNormIsAnErrorWithoutClipping) {
  for (const Between between : {Between::Nothing, Between::State}) {
    CaseRun training(on_gpu({.clip = false, .between = between}));
    spoil(training.trainer(), kSpoiled);
    EXPECT_THROW(training.train(0, 1), NumericError);
  }
}

/// The token error is reported, although an update without clipping also finds gradients that are
/// NaN.
TEST_F(EmulatedStep, NamesATokenThatIsOutsideTheTable) {
  for (const bool clip : {true, false}) {
    TrainingCase run = on_gpu({.clip = clip, .memory = Memory::Smallest});
    run.model.num_layers = 12;  // more chunks than gradient buffers
    const Gpt2 model(run.model, kMicroBatchSize, run.length, run.dtype);
    const Preparation prepared = prepare_case(model, run);
    const auto device = create_case_device(prepared, run);
    const Data data(run.model, run.length, 1, 1);
    {
      Trainer trainer(model, *device, prepared);
      int32_t& token = reinterpret_cast<int32_t*>(data.micro_batches()[0].inputs[0].data)[5];
      const int32_t good = std::exchange(token, 97);
      const std::string text =
          error_of<LogicError>([&] { trainer.step(data.micro_batches(), 1e-3); }).what();
      EXPECT_NE(text.find("index 97 at row 5 is outside the table of 97 rows"), std::string::npos)
          << text;
      token = good;
    }
    Trainer next(model, *device, prepared);
    EXPECT_NO_THROW(next.step(data.micro_batches(), 1e-3)) << "the error was reported already";
  }
}

// ---- Full queues
// ---------------------------------------------------------------------------------

/// The fixture checks that no call found a queue full. Rings make the most records.
TEST_F(EmulatedStep, StandsInNoFullQueue) {
  for (const size_t pinned_bytes : {SIZE_MAX, size_t{2} << 20}) {
    TrainingCase run = on_gpu({.accumulation = 2,
                               .memory = Memory::Smallest,
                               .activations = ActivationPlacement::Offload,
                               .pinned_bytes = pinned_bytes});
    run.model.num_layers = 12;
    const Outcome expected = train(run).outcome;
    emulation::settings().full_queue = emulation::FullQueue::BlocksDriver;
    EXPECT_EQ(train(run).outcome, expected);
  }
}

// ---- State lock ---------------------------------------------------------------------------------

/// While the state is locked, an update may wait for the thread that reads the state. A stream that
/// waits for this update could block that thread's copies from the device if both use one hardware
/// queue.
TEST_F(EmulatedStep, WhileTheStateIsLockedNoStreamWaitsForAHostThread) {
  TrainingCase run = on_gpu({.clip = false, .memory = Memory::Smallest, .between = Between::State});
  run.model.num_layers = 12;  // more chunks than gradient buffers
  CaseRun training(run), alone(run);
  alone.train(0, 2);
  training.train(0, 1);
  const auto calls = count_calls([&] {
    std::jthread borrower([reader = training.trainer().lock_state()]() mutable {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      const StateReader closed = std::move(reader);
    });
    training.train(1, 2);
  });
  EXPECT_FALSE(calls.contains("cuStreamWaitValue32"));
  EXPECT_TRUE(calls.contains("cudaStreamWaitEvent"));
  EXPECT_EQ(to_string(training.outcome()), to_string(alone.outcome()));
}

// ---- Operations that fail -----------------------------------------------------------------------

constexpr uint64_t kMost = 8;  // of each kind

TEST_F(EmulatedStep, AllocationsCanFail) {
  fail_operations(FaultSite::Allocation, kMost, DeviceKind::Cuda);
}
TEST_F(EmulatedStep, CopiesCanFail) { fail_operations(FaultSite::Copy, kMost, DeviceKind::Cuda); }
TEST_F(EmulatedStep, LaunchesCanFail) {
  fail_operations(FaultSite::Launch, kMost, DeviceKind::Cuda);
}

/// For each kind of call, lets some of its calls fail, including the first and the last.
/// test_training_refusals.cpp lets all fail.
void refuse_some(TwoSteps& run, const std::map<std::string, uint64_t>& calls) {
  const uint64_t expected = run();
  for (const auto& [call, count] : calls) {
    for (const uint64_t n : some_of(count, 3)) refuse(run, call, n, count, expected);
  }
}

TEST_F(EmulatedStep, CallsOfCudaCanBeRefused) {
  TwoSteps run(Between::State);
  ASSERT_GT(run.prepared().plan.count(&ChunkRecord::is_on_device), 0u);
  const auto calls = count_calls([&] { (void)run(); });
  for (const char* call : {"cudaMemcpyAsync", "cudaLaunchKernelEx", "cudaEventRecord",
                           "cudaStreamWaitEvent", "cuStreamWaitValue32"}) {
    EXPECT_TRUE(calls.contains(call)) << call;
  }
  refuse_some(run, calls);
}

TEST_F(EmulatedStep, BlocksMayNotBeMappedElsewhere) {
  TwoSteps run(Between::Nothing);
  const auto calls = count_calls([&] { (void)run(); });
  refuse_some(run, {{"cuMemMap", calls.at("cuMemMap")}, {"cuMemUnmap", calls.at("cuMemUnmap")}});
}

}  // namespace
}  // namespace ebb::test

// Failures in a step on the emulated GPU: NaN, wrong data, and copies, launches and calls that
// fail. The step throws the right error, nothing hangs and nothing leaks.
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "device/planes.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/cuda_emulation/refusals.h"
#include "tests/error_of.h"
#include "tests/trainer/checkpoint_cases.h"
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

/// Decides whether a call fails. While the gate is shut, the update thread blocks until a stream
/// waits for it or a call has failed. Otherwise the order of the two, and so the calls that can
/// fail, would depend on timing.
class UpdateGate {
 public:
  UpdateGate() {
    emulation::settings().refuses = [this](std::string_view call) {
      if (call == "cudaEventSynchronize" && is_update_thread()) is_open_.wait(false);
      const bool refused = refuses_ && refuses_(call);
      if (refused || call == "cuStreamWaitValue32") open();
      return refused;
    };
  }
  ~UpdateGate() { emulation::settings().refuses = {}; }
  UpdateGate(const UpdateGate&) = delete;
  UpdateGate& operator=(const UpdateGate&) = delete;

  void shut() { is_open_ = false; }

 private:
  static bool is_update_thread() {
    char name[16] = {};
    prctl(PR_GET_NAME, name);
    return std::string_view(name) == "ebb update";
  }
  void open() {
    is_open_ = true;
    is_open_.notify_all();
  }

  const std::function<bool(std::string_view)> refuses_ = emulation::settings().refuses;
  std::atomic<bool> is_open_ = true;
};

/// Runs a trainer of a small model for two steps, and returns the hash of the state. Saves the
/// state after the first step.
class TwoSteps {
 public:
  explicit TwoSteps(Between between)
      : run_(on_gpu({.memory = Memory::Smallest, .between = between})) {}

  uint64_t operator()() {
    saved_ = {};
    UpdateGate gate;
    const auto device = create_case_device(prepared_, run_);
    Trainer trainer(model_, *device, prepared_);
    trainer.step(data_.micro_batches(), 1e-3);  // the first step blocks the submitting thread
    save(trainer);
    if (run_.between == Between::State) gate.shut();  // a stream waits for the norm in this case
    trainer.step(data_.micro_batches(), 1e-3);
    const uint64_t hash = trainer.state_hash();
    emulation::settings().refuses = {};  // the following calls free everything
    return hash;
  }

  /// Runs what an earlier run had not saved before it failed.
  uint64_t resumed() const {
    const auto device = create_case_device(prepared_, run_);
    Trainer trainer(model_, *device, prepared_);
    if (saved_) {
      trainer.restore(saved_->counters, reader_of(saved_->state));
    } else {
      trainer.step(data_.micro_batches(), 1e-3);
    }
    trainer.step(data_.micro_batches(), 1e-3);
    return trainer.state_hash();
  }

  const Preparation& prepared() const { return prepared_; }

 private:
  struct Saved {
    OptimizerCounters counters;
    StateCopy state;
  };
  void save(Trainer& trainer) {
    const StateReader reader = trainer.lock_state();
    saved_ = Saved{reader.counters(), copy_of(reader, state_planes(run_.dtype).size())};
  }

  std::optional<Saved> saved_;
  static constexpr int64_t kTokens = 4;
  const TrainingCase run_;
  const Gpt2 model_{run_.model, kMicroBatchSize, kTokens, run_.dtype};
  const Preparation prepared_ = prepare_case(model_, run_);
  const Data data_{run_.model, kTokens, 1, 3};
};

/// Runs the two steps while a call is refused. Returns false if they end without an error.
bool fails(TwoSteps& run, const std::string& call, const Refusal& refusal, uint64_t expected) {
  try {
    EXPECT_EQ(run(), expected);
    // Home memory that cannot be pinned is copied through rings.
    EXPECT_TRUE(!refusal.happened() || may_be_refused_in_silence(call) ||
                call == "cudaHostRegister");
    return false;
  } catch (const LogicError& error) {
    ADD_FAILURE() << error.what();
  } catch (const std::exception& error) {
    EXPECT_TRUE(names_call(error.what(), call)) << error.what();
  }
  return true;
}

/// For each kind of call, lets some of its calls fail, including the first and the last. The error
/// names the call, and a later run continues from the saved state. Only calls that measure time may
/// fail without an error, and then the result is the same.
void refuse_some(TwoSteps& run, const std::map<std::string, uint64_t>& calls) {
  const uint64_t expected = run();
  for (const auto& [call, count] : calls) {
    for (const uint64_t n : some_of(count, 3)) {
      SCOPED_TRACE(testing::Message() << call << " number " << n << " of " << count);
      bool failed = true;
      {
        const Refusal refusal(call, n);
        failed = fails(run, call, refusal, expected);
        EXPECT_TRUE(refusal.happened() || n > 0);
      }
      EXPECT_EQ(emulation::live(), emulation::Live());
      if (failed) {
        EXPECT_EQ(run.resumed(), expected);
      }
    }
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

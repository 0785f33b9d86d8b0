// Two training steps on the emulated GPU in which one call of CUDA is refused.
#pragma once

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "device/planes.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/cuda_emulation/refusals.h"
#include "tests/trainer/checkpoint_cases.h"
#include "tests/trainer/on_gpu.h"

namespace ebb::test {

/// Decides whether a call fails. While the gate is shut, the update thread blocks until a stream
/// waits for it or a call has failed. Otherwise the order of the two, and so the calls that can
/// fail, would depend on timing.
class UpdateGate {
 public:
  UpdateGate() {
    emulation::settings().refuses = [this](std::string_view call) {
      if (call == "cudaEventQuery" && is_update_thread()) is_open_.wait(false);
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
inline bool fails(TwoSteps& run, const std::string& call, const Refusal& refusal,
                  uint64_t expected) {
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

/// Lets call number `n` of `count` fail. The error names the call, and a later run continues from
/// the saved state. Only calls that measure time may fail without an error, and then the result is
/// `expected` too.
inline void refuse(TwoSteps& run, const std::string& call, uint64_t n, uint64_t count,
                   uint64_t expected) {
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

}  // namespace ebb::test

// While a state lock is held, a reader sees the state of the time of locking although training
// continues. Planted defects show that the tests find a violation.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/trainer/checkpoint_cases.h"
#include "tests/trainer/watchdog.h"

namespace ebb::test {
namespace {

constexpr size_t kNumPlanes = 4;  // with bf16 weights

/// Reads the parameters in call order and releases each after it is read.
StateCopy copy_of(StateReader reader, std::chrono::microseconds pause = {}, bool keep = true) {
  StateCopy copy(reader.layout().num_parameters());
  for (size_t i = 0; i < reader.parts().size(); ++i) {
    // Planted if not `keep`: all parameters are released before they are read.
    if (!keep) reader.release(reader.parts().size());
    std::this_thread::sleep_for(pause);
    const ParameterId id = reader.parts()[i];
    for (size_t plane = 0; plane < kNumPlanes; ++plane) {
      copy[id].push_back(plane_of(reader, id, plane));
    }
    if (keep) reader.release(i + 1);
  }
  return copy;
}

/// Copies the state in another thread while the next steps run.
StateCopy copied_during_training(CaseRun& training, bool keep = true) {
  StateCopy copy;
  {
    std::jthread reading([&copy, keep, reader = training.trainer().lock_state()]() mutable {
      copy = copy_of(std::move(reader), std::chrono::milliseconds(keep ? 2 : 10), keep);
    });
    training.train(2, 4);
  }
  return copy;
}

std::vector<TrainingCase> cases() {
  return {{.accumulation = 2, .memory = Memory::Smallest, .num_threads = 2},
          {.clip = false, .num_threads = 2},
          {.update = UpdateOrder::Speculate, .max_norm = 1e9f},
          {.memory = Memory::Smallest, .num_threads = 2, .delayed_updates = true},
          {.update = UpdateOrder::Wait, .between = Between::State},
          {.clip = false, .between = Between::State},
          {.clip = false, .memory = Memory::Between, .between = Between::Weights}};
}

TEST(StateReader, IsUnchangedWhileTrainingContinues) {
  const Watchdog watchdog;
  for (const TrainingCase& run : cases()) {
    SCOPED_TRACE(run);
    CaseRun one(run), other(run);
    one.train(0, 2);
    other.train(0, 2);
    const StateCopy still = copy_of(one.trainer().lock_state());
    one.train(2, 4);
    EXPECT_TRUE(copied_during_training(other) == still);
    EXPECT_EQ(to_string(other.outcome()), to_string(one.outcome()));
  }
}

/// An update that waits for the state lock must not delay the update before it, not even with one
/// thread.
TEST(StateReader, DelaysOnlyTheUpdateThatWaits) {
  CaseRun training({.memory = Memory::Smallest, .num_threads = 1});
  training.train(0, 1);
  uint32_t waiting = 0;
  {
    StateReader lock = training.trainer().lock_state();
    const Layout& layout = training.trainer().layout();
    waiting = layout.chunks(Space::Weights, layout.weight_elements(lock.parts().back(), {})).first;
    lock.release(lock.parts().size() - 1);
    std::jthread reading([reader = std::move(lock)]() mutable {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      const StateReader closed = std::move(reader);
    });
    training.train(1, 3);  // the first step defers its updates to the second
  }
  const Plan& plan = training.prepared().plan;
  const auto is_deferred = [](const Op& op) { return op.kind == OpKind::Update && op.deferred; };
  const auto at = std::ranges::find_if(
      plan.ops, [&](const Op& op) { return is_deferred(op) && op.chunk.index == waiting; });
  ASSERT_TRUE(at > plan.ops.begin() && at < plan.ops.end() && is_deferred(at[-1]));
  const auto times = training.trainer().last_step_times();
  const auto i = static_cast<size_t>(at - plan.ops.begin());
  EXPECT_GT(times[i].end_s - times[i - 1].end_s, 0.1);
}

/// Before step 0 no update is deferred, no weight is resident and no state is on the device.
TEST(StateReader, ReadsTheInitialWeights) {
  CaseRun training({.between = Between::State});
  const StateCopy copy = copy_of(training.trainer().lock_state());
  const Layout& layout = training.trainer().layout();
  for (ParameterId id = 0; id < layout.num_parameters(); ++id) {
    ASSERT_EQ(copy[id].size(), 4u);
    EXPECT_EQ(copy[id][0].size(), 2 * layout.num_elements(id));
    EXPECT_EQ(copy[id][3], std::vector<std::byte>(4 * layout.num_elements(id)));
  }
}

/// A thread that writes the state waits until the state lock is released.
TEST(StateReader, WritingWaitsForTheLock) {
  const Watchdog watchdog;
  CaseRun training({.dtype = DType::F32});
  std::atomic<bool> given_back = false;
  std::jthread reading([&given_back, reader = training.trainer().lock_state()]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    given_back = true;
    const StateReader ends = std::move(reader);
  });
  const std::vector<float> values(training.trainer().read_parameter("ln_f.weight").size(), 2.0f);
  training.trainer().write_parameter("ln_f.weight", values);
  EXPECT_TRUE(given_back);
}

TEST(StateReader, ExistsOnlyOnceAtATime) {
  CaseRun training({});
  StateReader reader = training.trainer().lock_state();
  EXPECT_THROW(training.trainer().lock_state(), LogicError);
  reader.release(3);
  EXPECT_THROW(reader.release(2), LogicError);
  EXPECT_THROW(reader.release(reader.parts().size() + 1), LogicError);
}

/// Returns the parameters whose chunks are all updated by the device, or all by the host.
std::vector<ParameterId> parameters_updated(const Preparation& prepared, bool on_device) {
  const Layout& layout = *prepared.layout;
  std::vector<ParameterId> parameters;
  for (const ParameterId id : layout.call_order()) {
    const ChunkRange chunks =
        layout.chunks(Space::Weights, layout.first_element(id), layout.num_elements(id));
    bool all = true;
    for (uint32_t c = chunks.first; c < chunks.last; ++c) {
      all = all && prepared.plan.chunks[c].is_on_device() == on_device;
    }
    if (all) parameters.push_back(id);
  }
  return parameters;
}

/// Updates that do not wait for the lock change the copy.
TEST(StateReader, PlantedUpdatesThatDoNotWaitAreFound) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer reports it";
#endif
  for (const Between between : {Between::Nothing, Between::State}) {
    const TrainingCase run{.clip = false, .num_threads = 2, .between = between};
    CaseRun one(run), other(run);
    one.train(0, 2);
    other.train(0, 2);
    const StateCopy read_late = copied_during_training(other, false),
                    alone = copy_of(one.trainer().lock_state());
    bool found = false;
    for (const ParameterId id : parameters_updated(one.prepared(), between == Between::State)) {
      found = found || read_late[id] != alone[id];
    }
    EXPECT_TRUE(found) << to_string(run);
  }
}

/// Trains from a copy of the state and the given counters. The plane `forgotten` is not restored;
/// kNumPlanes: all planes are restored.
Outcome train_from(const TrainingCase& run, const StateCopy& copy, OptimizerCounters counters,
                   size_t forgotten = kNumPlanes) {
  CaseRun training(run);
  training.trainer().restore(counters, reader_of(copy, forgotten));
  training.train(2, 4);
  return training.outcome();
}

TEST(StateReader, PlantedMissingPlanesAndWrongCountersAreFound) {
  const TrainingCase run{.num_threads = 2};
  CaseRun whole(run);
  whole.train(0, 2);
  StateReader reader = whole.trainer().lock_state();
  OptimizerCounters counters = reader.counters();
  EXPECT_EQ(counters, (OptimizerCounters{.num_updates = 2}));
  const StateCopy copy = copy_of(std::move(reader));
  const Outcome expected = train_from(run, copy, counters);
  whole.train(2, 4);
  EXPECT_EQ(expected.hash, whole.outcome().hash);
  for (size_t plane = 0; plane < kNumPlanes; ++plane) {
    EXPECT_NE(train_from(run, copy, counters, plane).hash, expected.hash) << "plane " << plane;
  }
  ++counters.num_updates;
  EXPECT_NE(train_from(run, copy, counters).hash, expected.hash);
}

}  // namespace
}  // namespace ebb::test

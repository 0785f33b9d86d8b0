// Loops on streams of updates: what comes behind a loop, and what need not. Plain memory: under
// ThreadSanitizer a missing ordering is a reported race.
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "device/device.h"
#include "device/errors.h"
#include "tests/device/backends.h"
#include "tests/device/gate.h"
#include "tests/error_of.h"

namespace ebb {
namespace {

class StreamLoops : public test::OnDevice {
 protected:
  void SetUp() override {
    test::OnDevice::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    device = make_device({.num_threads = 4});  // on two nodes two each
    first = device->create_event();
    second = device->create_event();
    update = device->create_stream(StreamRole::Update);
  }

  const tbb::global_control threads_allowed_{tbb::global_control::max_allowed_parallelism, 8};
  std::unique_ptr<Device> device;
  std::unique_ptr<Event> first, second;
  std::unique_ptr<Stream> update;
};

TEST_P(StreamLoops, AreOverWhereRecordsCallsAndTheEndAre) {
  std::vector<int> values(1000);
  int behind = 0, num_behind_calls = 0;
  for (int round = 0; round < 50; ++round) {
    update->loop({}, [&] {
      return Loop{.n = std::ssize(values),
                  .body = [&values](int64_t i) { ++values[static_cast<size_t>(i)]; },
                  .then = [&behind] { ++behind; }};
    });
    if (round % 3 == 0) {
      update->record(*first);
      first->synchronize();
      for (int v : values) ASSERT_EQ(v, round + 1);
    } else if (round % 3 == 1) {
      update->call({}, [&, round] {
        for (int v : values) num_behind_calls += v == round + 1;
      });
    } else {
      update->synchronize();
      ASSERT_EQ(behind, round + 1);
    }
  }
  update->loop({}, [] { return Loop{}; });  // nothing to do
  update->synchronize();
  EXPECT_EQ(behind, 50);
  EXPECT_EQ(num_behind_calls, 17 * std::ssize(values));  // rounds 1, 4 .. 49
  EXPECT_GT(update->stats().busy_s, 0);
}

/// Holds one thread in a loop, until it is opened, and not the stream's.
struct Held {
  Gate gate;
  std::atomic<bool> is_held = false;

  /// Called on the stream's thread.
  Loop loop() {
    return {.n = 2, .body = [this, own = std::this_thread::get_id()](int64_t) {
              if (std::this_thread::get_id() != own && !is_held.exchange(true)) return gate.pass();
              while (!is_held) std::this_thread::yield();
            }};
  }
};

TEST_P(StreamLoops, HoldUpTheirOwnRecordAndThoseBehindButNotTheNextLoop) {
  Held held;
  Gate all_submitted;
  std::atomic<int> num_run = 0;
  update->call({}, [&] { all_submitted.pass(); });
  update->loop({}, [&] { return held.loop(); });
  update->record(*first);
  update->loop({}, [&] { return Loop{.n = 100, .body = [&](int64_t) { ++num_run; }}; });
  update->record(*second);
  all_submitted.open();
  while (num_run < 100) std::this_thread::yield();
  EXPECT_FALSE(first->done());
  EXPECT_FALSE(second->done());
  held.gate.open();
  second->synchronize();
  EXPECT_TRUE(first->done());
}

// The wait is for what comes only when the record before it has fired.
TEST_P(StreamLoops, AreFinishedBeforeTheStreamSleeps) {
  int value = 0;
  const auto load = device->create_stream(StreamRole::Load);
  update->loop({}, [&] { return Loop{.n = 1, .body = [&value](int64_t) { value = 1; }}; });
  update->record(*first);
  load->wait(*first);
  load->record(*second);
  update->wait(*second);
  update->loop({}, [&] { return Loop{.n = 1, .body = [&value](int64_t) { value *= 7; }}; });
  update->synchronize();
  EXPECT_EQ(value, 7);
}

TEST_P(StreamLoops, FailAloneAndBehindThem) {
  Held held;
  bool ran = false;
  update->loop({}, [&] { return held.loop(); });
  update->record(*first);
  update->loop({}, []() -> Loop { throw DeviceError("no loop"); });
  update->record(*second);
  update->loop({}, [&ran] {
    ran = true;
    return Loop{};
  });
  while (!held.is_held) std::this_thread::yield();
  held.gate.open();
  EXPECT_NO_THROW(first->synchronize());
  EXPECT_STREQ(test::error_of<DeviceError>([&] { second->synchronize(); }).what(), "no loop");
  EXPECT_THROW(update->synchronize(), DeviceError);
  EXPECT_FALSE(ran);
}

TEST_P(StreamLoops, AreRefusedByOtherStreams) {
  for (const StreamRole role : {StreamRole::Compute, StreamRole::Load, StreamRole::Store}) {
    EXPECT_THROW(device->create_stream(role)->loop({}, [] { return Loop{}; }), LogicError);
  }
}

EBB_ON_EVERY_DEVICE(StreamLoops);

}  // namespace
}  // namespace ebb

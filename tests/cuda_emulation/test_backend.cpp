// Tests that need an emulated GPU: less memory, a second device, a call that fails.
// In each case the error names a remedy, nothing hangs and nothing leaks.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "device/device.h"
#include "device/errors.h"
#include "device/kernels.h"
#include "tests/cuda_emulation/emulated_backend.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/cuda_emulation/refusals.h"
#include "tests/cuda_emulation/stream_queue.h"
#include "tests/device/gate.h"
#include "tests/error_of.h"

namespace ebb::test::tests_of_backend {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kBlock = 2 * kMiB;

// ---- Which kernels there are --------------------------------------------------------------------

TEST_F(EmulatedBackend, HeadsThatAreTooLargeAreErrorsThatNameARemedy) {
  const auto device = create_gpu();
  const auto stream = device->create_stream(StreamKind::Compute);
  const auto tensor = [](Shape shape, DType dtype = DType::F32) {
    return Tensor{reinterpret_cast<std::byte*>(uintptr_t{0x1000}), dtype, shape};
  };
  const Tensor out = tensor({1, 4, 257}), qkv = tensor({1, 4, 3 * 257}), lse = tensor({1, 1, 4});
  const Tensor cache = tensor({1, 4, 2 * 257}), positions = tensor({1, 4}, DType::I32);
  const std::vector<double> frequencies(129);
  const AnyKernel too_large[] = {
      AttentionForward{out, lse, qkv, {.num_heads = 1}},
      AttentionCached{out, qkv, cache, positions, {.num_heads = 1}},
      AttentionBackward{qkv, out, qkv, out, lse, {.num_heads = 1}},
      RotaryTable{tensor({4, 258}), positions, frequencies, 1},
  };
  for (const AnyKernel& kernel : too_large) {
    EXPECT_SAYS(error_of<LogicError>([&] { device->kernels().submit(*stream, kernel); }),
                "take more heads or `device` host");
  }
}

// ---- Limits of memory ---------------------------------------------------------------------------

TEST_F(EmulatedBackend, MoreThanMayBePinnedIsRefusedWithTheLimit) {
  emulation::settings().pinnable_bytes = 4 * kMiB;
  const auto device = create_gpu();
  const emulation::Live before = emulation::live();
  const auto text =
      error_of<OutOfMemory>([&] { device->allocate(MemoryKind::Pinned, 8 * kMiB, "weight"); });
  EXPECT_SAYS(text, "weight");
  EXPECT_SAYS(text, "ulimit -l");
  EXPECT_EQ(emulation::live(), before);
  device->allocate(MemoryKind::Pinned, kMiB, "weight");
}

TEST_F(EmulatedBackend, LessMemoryThanTheBudgetSaysIsAnErrorThatLeavesNothing) {
  emulation::settings().memory_bytes = 8 * kMiB;
  const auto device = create_gpu({.memory_bytes = 64 * kMiB});
  const emulation::Live before = emulation::live();
  const std::function<void()> attempts[] = {
      [&] { device->allocate(MemoryKind::Device, 16 * kMiB, "inputs"); },
      [&] { device->create_blocks(kBlock, 5); },
      [&] { device->reserve_workspace(9 * kMiB); },
  };
  for (const auto& attempt : attempts) {
    const auto text = error_of<OutOfMemory>(attempt);
    EXPECT_SAYS(text, "nvidia-smi");
    EXPECT_SAYS(text, "`device_memory`");
    EXPECT_EQ(device->used_bytes(), 0u);
    EXPECT_EQ(emulation::live(), before);
  }
  device->reserve_workspace(6 * kMiB);
  EXPECT_EQ(device->used_bytes(), 6 * kMiB);
}

/// Faults in every build, because no memory is mapped after the last block.
TEST(EmulatedBackendDeathTest, AnIndexBeyondABlockFaults) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto add = [](size_t count) {
    const auto device = create_gpu();
    const auto blocks = device->create_blocks(kBlock, 1);
    std::byte* const place = blocks->reserve(2 * kBlock);
    const auto compute = device->create_stream(StreamKind::Compute);
    blocks->map(0, place, *compute);
    const Tensor x{place, DType::F32, {static_cast<int64_t>(count)}};
    device->kernels().submit(*compute, Add{x, x, x});
    compute->synchronize();
    std::_Exit(0);
  };
  constexpr size_t kInBlock = kBlock / sizeof(float);
  EXPECT_EXIT(add(kInBlock), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      add(kInBlock + 1), [](int status) { return status != 0; }, "");
}

// ---- What CUDA keeps for later ------------------------------------------------------------------

Tensor floats(const Buffer& buffer) {
  return {buffer.data(), DType::F32, {static_cast<int64_t>(buffer.bytes() / sizeof(float))}};
}

/// "Not ready" would stay as the thread's last error, and a launch would report it.
TEST_F(EmulatedBackend, AskingAnEventThatIsNotDoneFailsNoLaunch) {
  const auto device = create_gpu();
  const Buffer y = device->allocate(MemoryKind::Device, 4096, "y");
  const auto event = device->create_event();
  Gate gate;
  const auto compute = device->create_stream(StreamKind::Compute);
  const auto load = device->create_stream(StreamKind::Load);
  device->kernels().submit(*compute, Add{floats(y), floats(y), floats(y)});  // loads the code
  compute->synchronize();
  load->submit({}, [&] { gate.pass(); });
  load->record(*event);
  EXPECT_FALSE(event->done());
  device->kernels().submit(*compute, Add{floats(y), floats(y), floats(y)});
  (void)load->stats();  // queries the marks of BusyTime
  device->kernels().submit(*compute, Add{floats(y), floats(y), floats(y)});
  EXPECT_NO_THROW(compute->synchronize());
  gate.open();
}

/// The emulation throws if code is loaded while a stream waits for a host thread.
TEST_F(EmulatedBackend, CodeIsLoadedWhileNoStreamWaitsForAHostThread) {
  for (const bool in_place : {false, true}) {
    const auto device = create_gpu();
    const Buffer y = device->allocate(MemoryKind::Device, 4096, "y");
    const auto event = device->create_event();
    Gate gate;
    const auto compute = device->create_stream(StreamKind::Compute);
    const auto load = device->create_stream(StreamKind::Load);
    const auto update = device->create_stream(StreamKind::Update);
    update->submit({}, [&] { gate.pass(); });
    update->record(*event);
    device->block_submitting_thread(in_place);
    std::thread opens([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (in_place) gate.open();
    });
    load->wait(*event);
    EXPECT_EQ(event->done(), in_place);
    device->kernels().submit(*compute, Add{floats(y), floats(y), floats(y)});
    gate.open();
    opens.join();
    if (in_place) {
      EXPECT_NO_THROW(compute->synchronize());
    } else {
      EXPECT_SAYS(error_of<LogicError>([&] { compute->synchronize(); }),
                  "code is loaded while a stream waits for a host thread");
    }
    load->synchronize();
  }
}

/// The queue of a GPU stream holds 1020 entries. A thread that finds it full would block in the
/// driver.
TEST_F(EmulatedBackend, TheQueueOfAStreamIsNeverFull) {
  constexpr int kOperations = 1500, kMost = 830;  // and the wait, which counts as two
  const auto device = create_gpu();
  const auto released = device->create_event(), recorded = device->create_event();
  Gate gate;
  const auto compute = device->create_stream(StreamKind::Compute);
  const auto update = device->create_stream(StreamKind::Update);
  update->submit({}, [&] { gate.pass(); });
  update->record(*released);
  compute->wait(*released);
  std::atomic<int> num_submitted = 0;
  std::thread submitting([&] {
    for (; num_submitted < kOperations; ++num_submitted) compute->record(*recorded);
  });
  while (num_submitted < kMost) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(num_submitted, kMost);
  gate.open();
  submitting.join();
  compute->synchronize();
}

/// The failure is known as if the stream itself had waited.
TEST_F(EmulatedBackend, AFailureIsKnownToTheStreamInWhosePlaceAThreadWaited) {
  const auto device = create_gpu();
  const auto event = device->create_event();
  const auto load = device->create_stream(StreamKind::Load);
  const auto update = device->create_stream(StreamKind::Update);
  device->block_submitting_thread(true);
  update->submit({}, [] { throw DeviceError("broken"); });
  update->record(*event);
  EXPECT_NO_THROW(load->wait(*event));
  EXPECT_SAYS(error_of<DeviceError>([&] { load->synchronize(); }), "broken");
}

/// The next stream does not get the error, although this stream fails afterwards.
TEST_F(EmulatedBackend, WrongDataIsToldToTheStreamThatHadIt) {
  const auto device = create_gpu();
  const Buffer memory = device->allocate(MemoryKind::Device, 4096, "memory");
  const Tensor y{memory.data(), DType::F32, {1, 4}};
  const Tensor table{memory.data() + 256, DType::F32, {3, 4}};
  const Tensor tokens{memory.data() + 512, DType::I32, {1}};
  const Buffer home = device->allocate(MemoryKind::Pinned, sizeof(int32_t), "token");
  *reinterpret_cast<int32_t*>(home.data()) = 5;
  {
    const auto compute = device->create_stream(StreamKind::Compute);
    compute->copy(tokens.data, home.data(), sizeof(int32_t), CopyKind::Load);
    device->kernels().submit(*compute, EmbeddingForward{y, tokens, {}, table, {}});
    emulation::settings().refuses = [](std::string_view call) {
      return call == "cudaLaunchKernelEx";
    };
    device->kernels().submit(*compute, Add{y, y, y});
    EXPECT_SAYS(error_of<LogicError>([&] { compute->synchronize(); }), "index 5 at row 0");
    emulation::settings().refuses = {};
  }
  const auto next = device->create_stream(StreamKind::Compute);
  EXPECT_NO_THROW(next->synchronize());
}

TEST_F(EmulatedBackend, ARefusedLaunchIsToldOnItsOwnStreamAlone) {
  const auto device = create_gpu();
  const Buffer y = device->allocate(MemoryKind::Device, 4096, "y");
  const auto one = device->create_stream(StreamKind::Compute);
  const auto other = device->create_stream(StreamKind::Compute);
  emulation::settings().refuses = [n = 0](std::string_view call) mutable {
    return call == "cudaLaunchKernelEx" && n++ == 0;
  };
  device->kernels().submit(*one, Add{floats(y), floats(y), floats(y)});
  device->kernels().submit(*other, Add{floats(y), floats(y), floats(y)});
  EXPECT_SAYS(error_of<DeviceError>([&] { one->synchronize(); }), "launch");
  EXPECT_NO_THROW(other->synchronize());
}

/// A stream that failed cancels its waits, so that events need not keep their records.
TEST_F(EmulatedBackend, WaitsOfAFailedStreamHoldNothing) {
  const auto device = create_gpu();
  const auto event = device->create_event();
  const auto compute = device->create_stream(StreamKind::Compute);
  const auto update = device->create_stream(StreamKind::Update);
  update->submit({}, [] { throw DeviceError("broken"); });
  EXPECT_THROW(update->synchronize(), DeviceError);
  const int64_t before = emulation::live().num_events;
  for (int i = 0; i < 50; ++i) {
    compute->record(*event);
    update->wait(*event);
    EXPECT_THROW(update->synchronize(), DeviceError);
  }
  EXPECT_LE(emulation::live().num_events, before + 1);
}

// ---- A GPU that is not the first ----------------------------------------------------------------

std::unique_ptr<Device> create_second_gpu() {
  emulation::settings().num_devices = 2;
  emulation::forget_contexts();
  return create_gpu({.cuda_index = 1});
}

constexpr uint32_t kOnTheSecondAlone = 0b10;  // a context takes hundreds of MB of GPU 0

/// In a new thread, GPU 0 is current until the thread calls cudaSetDevice.
TEST_F(EmulatedBackend, NewThreadsUseTheDevicesOwnGpu) {
  const auto device = create_second_gpu();
  const Buffer y = device->allocate(MemoryKind::Device, 4096, "y");
  const auto blocks = device->create_blocks(kBlock, 1);
  std::byte* const place = blocks->reserve(2 * kBlock);
  const auto event = device->create_event();
  const auto host_event = device->create_event();
  Gate gate;
  const auto compute = device->create_stream(StreamKind::Compute);
  const auto load = device->create_stream(StreamKind::Load);
  const auto update = device->create_stream(StreamKind::Update);
  update->submit({}, [&] { gate.pass(); });
  update->record(*host_event);
  compute->record(*event);
  update->wait(*event);  // keeps this record, so the next one uses another CUDA event
  std::vector<std::unique_ptr<Event>> more;
  std::thread([&] {
    while (more.size() < 2000) more.push_back(device->create_event());  // flags in a new slab
    load->wait(*event);
  }).join();
  std::thread([&] {
    event->synchronize();
    EXPECT_GT(event->time_s(), 0);
  }).join();
  std::thread([&] { compute->record(*event); }).join();
  std::thread([&] { load->wait(*host_event); }).join();
  std::thread([&] { device->kernels().submit(*compute, FillZero{floats(y)}); }).join();
  std::thread([&] { blocks->map(0, place, *compute); }).join();
  std::thread([&] { blocks->map(0, place + kBlock, *compute); }).join();
  gate.open();
  for (Stream* stream : {compute.get(), load.get(), update.get()}) {
    EXPECT_NO_THROW(stream->synchronize());
  }
  EXPECT_TRUE(event->done());
  EXPECT_EQ(emulation::contexts(), kOnTheSecondAlone);
}

/// For every kind of first call.
TEST_F(EmulatedBackend, ANewThreadsFirstCallIsForTheDevicesOwnGpu) {
  const auto device = create_second_gpu();
  const Buffer y = device->allocate(MemoryKind::Device, 4096, "y");
  auto event = device->create_event();
  auto compute = device->create_stream(StreamKind::Compute);
  const auto update = device->create_stream(StreamKind::Update);
  device->kernels().submit(*compute, FillZero{floats(y)});  // a wait ends this work, with a mark
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"a record", [&] { compute->record(*event); }},
      {"a wait of a host thread", [&] { update->wait(*event), update->synchronize(); }},
      {"a wait of a stream that works", [&] { compute->wait(*event); }},
      {"waiting for an event", [&] { event->synchronize(); }},
      {"asking whether it is done", [&] { EXPECT_TRUE(event->done()); }},
      {"asking when it was", [&] { EXPECT_GT(event->time_s(), 0); }},
      {"counting a stream's time", [&] { (void)compute->stats(); }},
      {"waiting for a stream", [&] { compute->synchronize(); }},
      {"the end of a stream", [&] { compute.reset(); }},
      {"the end of an event", [&] { event.reset(); }},
  };
  for (const auto& [name, call] : calls) {
    emulation::forget_contexts();
    std::thread(call).join();
    EXPECT_EQ(emulation::contexts() & ~kOnTheSecondAlone, 0u) << name;
  }
}

// ---- Two GPUs -----------------------------------------------------------------------------------

/// Each device has streams of the same numbers and positions, and the streams wait for events of
/// the other device.
TEST_F(EmulatedBackend, FailuresOfTwoDevicesAreToldApart) {
  emulation::settings().num_devices = 2;
  const auto one = create_gpu(), two = create_gpu({.cuda_index = 1});
  const auto done = one->create_event(), recorded = one->create_event();
  const auto update_of_one = one->create_stream(StreamKind::Update);
  const auto compute_of_one = one->create_stream(StreamKind::Compute);
  const auto update_of_two = two->create_stream(StreamKind::Update);
  const auto compute_of_two = two->create_stream(StreamKind::Compute);
  const auto load_of_two = two->create_stream(StreamKind::Load);
  for (int i = 0; i < 20; ++i) {
    update_of_one->submit({}, [] {});
    update_of_one->record(*done);
    compute_of_one->record(*recorded);
  }
  compute_of_two->wait(*done);  // a word
  load_of_two->wait(*recorded);
  update_of_two->submit({}, [] { throw DeviceError("broken on two"); });
  EXPECT_SAYS(error_of<DeviceError>([&] { update_of_two->synchronize(); }), "broken on two");
  EXPECT_NO_THROW(compute_of_two->synchronize()) << "it waits for no stream that failed";
  EXPECT_NO_THROW(load_of_two->synchronize());
  update_of_one->submit({}, [] { throw DeviceError("broken on one"); });
  update_of_one->record(*done);
  compute_of_two->wait(*done);
  EXPECT_SAYS(error_of<DeviceError>([&] { compute_of_two->synchronize(); }), "broken on one");
  EXPECT_NO_THROW(load_of_two->synchronize());
  EXPECT_NO_THROW(compute_of_one->synchronize());
}

// ---- Calls that are refused ---------------------------------------------------------------------

/// Opens the gates in its destructor, so that nothing waits for ever after an exception.
struct OpensAtLast {
  std::span<Gate> gates;
  ~OpensAtLast() {
    for (Gate& gate : gates) gate.open();
  }
};

/// Allocates what a trainer allocates, and does some work. Every run makes the same calls: the
/// gates stay shut until the streams wait.
void set_up_and_work() {
  std::array<Gate, 2> gates;  // of each round
  const auto device = create_gpu({.memory_bytes = 64 * kMiB, .poison = true});
  const Buffer home = device->allocate(MemoryKind::Pinned, kBlock, "home");
  const Buffer away = device->allocate(MemoryKind::Device, kBlock, "away");
  const auto blocks = device->create_blocks(kBlock, 2);
  std::byte* const place = blocks->reserve(2 * kBlock);
  device->reserve_workspace(kMiB);
  const auto loaded = device->create_event(), done = device->create_event();
  const auto load = device->create_stream(StreamKind::Load);
  const auto compute = device->create_stream(StreamKind::Compute);
  const auto update = device->create_stream(StreamKind::Update);
  const OpensAtLast opener{gates};
  for (uint32_t round = 0; round < 2; ++round) {
    blocks->map(round, place, *load);
    load->copy(place, home.data(), kBlock, CopyKind::Load);
    load->record(*loaded);
    compute->wait(*loaded);
    device->kernels().submit(*compute, FillZero{floats(away)});
    device->kernels().submit(*compute,
                             Add{floats(away), {place, DType::F32, {kBlock / 4}}, floats(away)});
    compute->record(*loaded);
    update->wait(*loaded);
    update->submit({}, [&gate = gates[round]] { gate.pass(); });
    update->record(*done);
    load->wait(*done);
    gates[round].open();
    done->synchronize();
    (void)loaded->time_s();
  }
  for (Stream* stream : {load.get(), compute.get(), update.get()}) stream->synchronize();
  emulation::settings().refuses = {};  // the following calls free everything
}

#if defined(__SANITIZE_THREAD__)
constexpr uint64_t kMostOfACall = 1;
#else
constexpr uint64_t kMostOfACall = 6;
#endif

TEST_F(EmulatedBackend, EveryCallCanBeRefused) {
  set_up_and_work();
  const std::map<std::string, uint64_t> calls = count_calls(set_up_and_work);
  EXPECT_GE(calls.size(), 18u);
  for (const auto& [call, count] : calls) {
    for (const uint64_t n : some_of(count, kMostOfACall)) {
      SCOPED_TRACE(testing::Message() << call << " number " << n << " of " << count);
      const Refusal refusal(call, n);
      std::string error;
      try {
        set_up_and_work();
      } catch (const std::exception& thrown) {
        error = thrown.what();
      }
      EXPECT_EQ(emulation::live(), emulation::Live());
      EXPECT_TRUE(refusal.happened() || n > 0);
      if (refusal.happened() && !may_be_refused_in_silence(call)) {
        EXPECT_TRUE(names_call(error, call)) << error;
      }
      EXPECT_EQ(error.find("CHECK"), std::string::npos) << error;
    }
  }
}

}  // namespace
}  // namespace ebb::test::tests_of_backend

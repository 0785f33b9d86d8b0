// GPUs that read the memory of each other: which can, and at which address. Between processes this
// needs a real GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "comm/thread_ranks.h"
#include "scheduler/run/trainer.h"
#include "tests/cuda_emulation/emulated_backend.h"

namespace ebb::test {
namespace {

class PeerMemory : public EmulatedBackend {
 protected:
  PeerMemory() { emulation::settings().num_devices = 2; }

  /// What two ranks find out that have these GPUs.
  static std::vector<bool> access_of(std::vector<int> gpus, uint32_t ranks_per_machine) {
    ThreadRanks ranks(2, {.ranks_per_machine = ranks_per_machine});
    std::vector<char> answers(2);
    const auto ask = [&](uint32_t rank) {
      answers[rank] = have_peer_access(
          ranks.rank(rank), {.profile = {.kind = DeviceKind::Cuda}, .cuda_index = gpus[rank]});
    };
    std::thread other(ask, 1);
    ask(0);
    other.join();
    return {answers.begin(), answers.end()};
  }
};

TEST_F(PeerMemory, IsReadByAnotherGpuOverNvlink) {
  EXPECT_TRUE(can_read_gpu(0, gpu_address(1)));
  EXPECT_FALSE(can_read_gpu(0, gpu_address(0)));
  EXPECT_FALSE(can_read_gpu(0, "0000:65:00.0"));
  emulation::settings().has_nvlink = false;
  EXPECT_FALSE(can_read_gpu(0, gpu_address(1)));
}

TEST_F(PeerMemory, IsNotReadWithFewHardwareQueues) {
  ASSERT_EQ(setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1), 0);
  EXPECT_FALSE(can_read_gpu(0, gpu_address(1)));
  ASSERT_EQ(setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1), 0);
  EXPECT_TRUE(can_read_gpu(0, gpu_address(1)));
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
}

TEST_F(PeerMemory, AllRanksGetTheSameAnswer) {
  EXPECT_EQ(access_of({0, 1}, 2), std::vector<bool>({true, true}));
  EXPECT_EQ(access_of({0, 0}, 2), std::vector<bool>({false, false}));
  EXPECT_EQ(access_of({0, 1}, 1), std::vector<bool>({false, false}));
}

TEST_F(PeerMemory, HasItsOwnAddressInOneProcess) {
  const auto owner = create_gpu(), reader = create_gpu({.cuda_index = 1});
  const Buffer memory = owner->allocate(MemoryKind::Device, size_t{2} << 20, "slots");
  EXPECT_EQ(reader->open_memory(owner->memory_name(memory)).get(), memory.data());
}

}  // namespace
}  // namespace ebb::test

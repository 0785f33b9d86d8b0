// State on the device is read, written, locked and restored like state in host memory, and takes no
// host memory.
#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

#include "cpu_adam/adamw.h"
#include "device/planes.h"
#include "scheduler/run/device_state.h"
#include "scheduler/search/memory_sizes.h"
#include "tests/trainer/checkpoint_cases.h"

namespace ebb::test {
namespace {

class StateOnDevice : public testing::TestWithParam<DType> {
 protected:
  static TrainingCase in_host_memory() { return {.dtype = GetParam()}; }
  static TrainingCase on_device() { return {.dtype = GetParam(), .between = Between::State}; }
  static size_t num_planes() { return state_planes(GetParam()).size(); }

  static StateCopy copy_of(Trainer& trainer) {
    return test::copy_of(trainer.lock_state(), num_planes());
  }
};
INSTANTIATE_TEST_SUITE_P(Types, StateOnDevice, testing::Values(DType::F32, DType::BF16, DType::F16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(StateOnDevice, TakesNoHostMemory) {
  const CaseRun home(in_host_memory()), device(on_device());
  const Layout& layout = *device.prepared().layout;
  uint64_t elements = 0;
  for (const ChunkIndex c : device.prepared().plan.chunks_that(&ChunkRecord::is_on_device))
    elements += layout.chunk_elements(c);
  ASSERT_GT(elements, 0u);
  const auto bytes = [](const CaseRun& run, std::string_view name) {
    return run.prepared().ledger.bytes(name, Tier::Host);
  };
  for (const PlaneInfo& plane : state_planes(GetParam())) {
    EXPECT_EQ(bytes(home, plane.name) - bytes(device, plane.name), plane.bytes(elements))
        << plane.name;
  }
  EXPECT_EQ(bytes(home, "gradients") - bytes(device, "gradients"), elements * size_of(GetParam()));
}

TEST_P(StateOnDevice, IsReadAndWritten) {
  CaseRun home(in_host_memory()), device(on_device());
  for (CaseRun* run : {&home, &device}) {
    run->train(0, 2);
    for (const ParameterId id : run->trainer().layout().call_order()) {
      const std::string& name = run->trainer().layout().parameter(id).name;
      std::vector<float> values = run->trainer().read_parameter(name);
      for (float& x : values) x = 1.001f * x;
      run->trainer().write_parameter(name, values);
    }
  }
  EXPECT_EQ(device.trainer().state_hash(), home.trainer().state_hash());
  for (CaseRun* run : {&home, &device}) run->train(2, 4);
  EXPECT_EQ(to_string(device.outcome()), to_string(home.outcome()));
}

TEST_P(StateOnDevice, IsRestoredFromStateOfEitherTier) {
  CaseRun home(in_host_memory()), device(on_device());
  for (CaseRun* run : {&home, &device}) run->train(0, 2);
  const StateCopy of_home = copy_of(home.trainer()), of_device = copy_of(device.trainer());
  EXPECT_TRUE(of_home == of_device);
  CaseRun restored(on_device()), without_variance(on_device());
  const OptimizerCounters counters = home.trainer().lock_state().counters();
  restored.trainer().restore(counters, reader_of(of_home));
  without_variance.trainer().restore(counters, reader_of(of_home, num_planes() - 1));
  for (CaseRun* run : {&home, &restored, &without_variance}) run->train(2, 4);
  EXPECT_EQ(restored.outcome().hash, home.outcome().hash);
  EXPECT_NE(without_variance.outcome().hash, home.outcome().hash);
}

/// An evaluation uses the weights on the device, with the smallest number of blocks.
TEST_P(StateOnDevice, IsEvaluated) {
  const Data data(tiny_gpt(), TrainingCase().length, 1, 7);
  std::vector<double> losses;
  for (TrainingCase run : {in_host_memory(), on_device()}) {
    run.evaluation_batches = 1;
    run.memory = Memory::Smallest;
    CaseRun training(run);
    losses.push_back(training.trainer().evaluate(data.micro_batches()));
    training.train(0, 2);
    losses.push_back(training.trainer().evaluate(data.micro_batches()));
    training.train(2, 3);
    losses.push_back(training.trainer().evaluate(data.micro_batches()));
  }
  EXPECT_TRUE(std::equal(losses.begin(), losses.begin() + 3, losses.begin() + 3, losses.end()));
  EXPECT_NE(losses[0], losses[1]);
}

constexpr size_t kMomentum = 1, kVariance = 2;

float* floats(std::byte* plane) { return reinterpret_cast<float*>(plane); }

/// The state of one chunk, which is larger than the bounce buffer and so is copied in parts.
class LargeDeviceState : public testing::Test {
 protected:
  static constexpr int64_t kElements = 5 << 17;  // 2.5 bounce buffers
  const Layout layout_{{{.name = "w", .shape = {kElements}}},
                       {0},
                       DType::F32,
                       DType::F32,
                       kElements * sizeof(float)};
  const std::unique_ptr<Device> device_ =
      create_device({.memory_bytes = device_state_bytes(layout_, 1) + layout_.chunk_bytes()});
  const Buffer weights_ = device_->allocate(MemoryKind::Device, layout_.chunk_bytes(), "weights");
  const ChunkRecord chunk_{.tier = Tier::Device};
  const DeviceState state_{*device_, layout_, {&chunk_, 1}, weights_.data(), nullptr};
};

TEST_F(LargeDeviceState, CopiesOnlyTheRequestedPlanesAndElements) {
  std::vector<float> expected(kElements, 0);
  std::iota(expected.begin() + 100, expected.end() - 1, 1.0f);
  constexpr uint64_t kFirst = 100, kCount = kElements - 101;
  uint64_t next = kFirst;
  state_.visit_copies(ChunkIndex(0), kFirst, kCount, PlaneSet().set(kVariance), true,
                      [&](uint64_t first, uint64_t count, const Planes& copies) {
                        EXPECT_EQ(first, next);
                        next += count;
                        EXPECT_EQ(copies[kMomentum], nullptr);
                        EXPECT_EQ(copies[kWeightPlane], nullptr);
                        std::copy_n(expected.begin() + static_cast<int64_t>(first), count,
                                    floats(copies[kVariance]));
                      });
  EXPECT_EQ(next, kFirst + kCount);
  std::vector<float> variance, momentum;
  state_.visit_copies(ChunkIndex(0), 0, kElements, PlaneSet().set(kMomentum).set(kVariance), false,
                      [&](uint64_t, uint64_t count, const Planes& copies) {
                        float* const m = floats(copies[kMomentum]);
                        float* const v = floats(copies[kVariance]);
                        momentum.insert(momentum.end(), m, m + count);
                        variance.insert(variance.end(), v, v + count);
                        *v = -1;  // not copied back, because the call does not write
                      });
  EXPECT_EQ(variance, expected);
  EXPECT_EQ(momentum, std::vector<float>(kElements, 0));
  float first_again = -1;
  state_.visit_copies(
      ChunkIndex(0), 0, 1, PlaneSet().set(kVariance), false,
      [&](uint64_t, uint64_t, const Planes& copies) { first_again = *floats(copies[kVariance]); });
  EXPECT_EQ(first_again, 0);
}

/// visit() throws while the next part is copied to the host.
TEST_F(LargeDeviceState, IsUnchangedAndUsableIfTheFirstVisitThrows) {
  const auto visit = [&](bool changed, const DeviceState::VisitCopies& visit_part) {
    state_.visit_copies(ChunkIndex(0), 0, kElements, PlaneSet().set(kVariance), changed,
                        visit_part);
  };
  std::vector<float> expected(kElements), found;
  std::iota(expected.begin(), expected.end(), 1.0f);
  visit(true, [&](uint64_t first, uint64_t count, const Planes& copies) {
    std::copy_n(expected.begin() + static_cast<int64_t>(first), count, floats(copies[kVariance]));
  });
  const auto throws = [](uint64_t first, uint64_t count, const Planes& copies) {
    EXPECT_EQ(first, 0u);
    std::fill_n(floats(copies[kVariance]), count, -1.0f);
    throw std::runtime_error("visit");
  };
  EXPECT_THROW(visit(true, throws), std::runtime_error);
  visit(false, [&](uint64_t, uint64_t count, const Planes& copies) {
    float* const values = floats(copies[kVariance]);
    found.insert(found.end(), values, values + count);
  });
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace ebb::test

// A trainer and an inference on the emulated GPU with a small limit of pinned memory (--pinned).
// All pinned memory is in the ledger. The home gets what the other buffers leave.
#include <gtest/gtest.h>

#include "chunk/home.h"
#include "device/planes.h"
#include "scheduler/run/inference.h"
#include "scheduler/run/state.h"
#include "scheduler/search/memory_sizes.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/trainer/cases.h"

namespace ebb::test::tests_of_pinned_limit {
namespace {

constexpr size_t kPage = 4096, kMiB = size_t{1} << 20;

class PinnedLimit : public testing::Test {
 protected:
  PinnedLimit() { emulation::settings().granularity = size_t{64} << 10; }
  ~PinnedLimit() override { emulation::settings() = {}; }
};

size_t pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

constexpr int64_t kBatch = 256, kShort = 16;

TrainingCase with_large_inputs(size_t pinned_bytes) {
  return {.accumulation = 24,
          .memory = Memory::Smallest,
          .between = Between::State,
          .pinned_bytes = pinned_bytes,
          .device = DeviceKind::Cuda,
          .model = emulated_gpt()};
}

/// Inputs, coefficients and the bounce buffer are pinned first, almost 2 MB. As much of the home as
/// still fits is pinned; the rest is copied through staging buffers, which are in the ledger too.
TEST_F(PinnedLimit, TheHomeGetsWhatATrainersBuffersLeave) {
  const TrainingCase run = with_large_inputs(5 * kMiB / 2);
  const Gpt2 model(run.model, kBatch, kShort, run.dtype);
  const Preparation prepared = prepare_case(model, run);
  ASSERT_GT(prepared.ledger.bytes("inputs", Tier::Host), kMiB);
  ASSERT_GT(prepared.plan.count(&ChunkRecord::is_on_device), 0u);
  const auto device = create_case_device(prepared, run);
  const Trainer trainer(model, *device, prepared);
  EXPECT_GT(device->staged_bytes(), 0u);
  EXPECT_LE(device->pinned_bytes(), run.pinned_bytes);
  size_t buffers = 0;
  for (const char* name : {"inputs", "losses", "coefficients", "bounce buffer"}) {
    buffers += pages(prepared.ledger.bytes(name, Tier::Host));
  }
  const size_t home =
      copied_bytes(*prepared.layout, state_planes(run.dtype), home_options(prepared.plan));
  const size_t rings = prepared.ledger.bytes("staging buffers", Tier::Host);
  EXPECT_GT(rings, 0u);
  EXPECT_EQ(device->pinned_bytes() + device->staged_bytes(), buffers + pages(home) + rings);
}

/// The host reads state on the device through the bounce buffer, so all state stays in host memory.
TEST_F(PinnedLimit, WithoutRoomForABounceBufferNoStateIsOnTheDevice) {
  const TrainingCase run = with_large_inputs(2 * kMiB);
  const Gpt2 model(run.model, kBatch, kShort, run.dtype);
  const Preparation prepared = prepare_case(model, run);
  EXPECT_EQ(prepared.plan.count(&ChunkRecord::is_on_device), 0u);
  const auto device = create_case_device(prepared, run);
  const Trainer trainer(model, *device, prepared);
  EXPECT_LE(device->pinned_bytes(), run.pinned_bytes);
}

TEST_F(PinnedLimit, TheHomeGetsWhatAnInferencesResultsLeave) {
  constexpr int64_t kVocabulary = 32768;
  const Gpt2 model({.vocabulary = kVocabulary,
                    .max_positions = kLength,
                    .channels = 32,
                    .num_layers = 1,
                    .num_heads = 1},
                   1, kLength, DType::BF16);
  const ForwardSpec pass{.model = &model, .logits_rows = kLength, .num_classes = kVocabulary};
  const PreparedInference prepared = prepare_inference(
      {&pass, 1}, {.chunk_bytes = size_t{128} << 10},
      {.device = {.kind = DeviceKind::Cuda, .num_threads = 1, .pinned_bytes = 3 * kMiB}});
  ASSERT_GT(prepared.result_bytes, 3 * kMiB / 2);
  const std::span<const PlaneInfo> weights = state_planes(DType::BF16).first(1);
  const auto device = create_device(
      {.profile = {.kind = DeviceKind::Cuda, .num_threads = 1, .pinned_bytes = 3 * kMiB}});
  const Inference inference(*device, prepared);
  EXPECT_GT(device->staged_bytes(), 0u);
  EXPECT_LE(device->pinned_bytes(), 3 * kMiB);
  EXPECT_EQ(device->pinned_bytes() + device->staged_bytes(),
            pages(prepared.input_bytes) + kPage + pages(prepared.result_bytes) +
                pages(copied_bytes(*prepared.layout, weights, {})) +
                prepared.ledger.bytes("staging buffers", Tier::Host));
}

}  // namespace
}  // namespace ebb::test::tests_of_pinned_limit

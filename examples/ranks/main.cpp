// Trains a classifier on one rank, then on two: threads of this process, each with a device and a
// trainer of its own. The state has the same bits.
#include <comm/thread_ranks.h>
#include <ebb/ebb.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <future>
#include <random>
#include <span>
#include <vector>

namespace {

constexpr uint32_t kNumMicroBatches = 4, kNumSteps = 20;
constexpr int64_t kBatch = 16, kWidth = 64, kNumClasses = 4;

/// The micro-batches of a step. The label of a point is the index of the largest of its first
/// coordinates.
struct Data {
  std::vector<float> points = std::vector<float>(kNumMicroBatches * kBatch * kWidth);
  std::vector<int32_t> labels;
  std::vector<ebb::MicroBatch> micro_batches;

  explicit Data(uint32_t step) : labels(kNumMicroBatches * kBatch) {
    std::mt19937 random(step);
    for (float& value : points) value = static_cast<float>(random() % 1000) / 1000;
    for (size_t i = 0; i < labels.size(); ++i) {
      const float* const point = &points[i * kWidth];
      labels[i] = static_cast<int32_t>(std::max_element(point, point + kNumClasses) - point);
    }
    for (size_t i = 0; i < labels.size(); i += kBatch) {
      const ebb::Tensor x{
          reinterpret_cast<std::byte*>(&points[i * kWidth]), ebb::DType::F32, {kBatch, kWidth}};
      const ebb::Tensor y{reinterpret_cast<std::byte*>(&labels[i]), ebb::DType::I32, {kBatch}};
      micro_batches.push_back({.inputs = {x, y}, .num_targets = kBatch});
    }
  }
};

/// Trains as one rank; null: as the only one. Returns the hash of the whole state.
uint64_t train(ebb::Ranks* ranks) {
  const ebb::Mlp model({kWidth, 512, 512, kNumClasses}, kBatch, ebb::DType::F32);
  const ebb::TrainerOptions options{.dtype = ebb::DType::F32,
                                    .chunk_bytes = 256 << 10,
                                    .gradient_accumulation = kNumMicroBatches};
  ebb::Budgets budgets{.device = {.num_threads = 1}};
  budgets.place = ebb::place_of(ranks);
  const ebb::Preparation prepared = ebb::prepare(model, options, budgets);
  const auto device = ebb::create_device({.profile = budgets.device});
  ebb::Trainer trainer(model, *device, prepared, ranks);

  const auto [first, count] = prepared.share.micro_batches;
  double loss = 0;
  for (uint32_t step = 0; step < kNumSteps; ++step) {
    const Data data(step);
    loss = trainer.step(prepared.share.micro_batches.of(data.micro_batches), 1e-3).loss;
  }
  const uint64_t hash = trainer.state_hash();
  std::printf("micro-batches %u to %u: loss of all %.6f, state_hash %016llx\n", first,
              first + count - 1, loss, static_cast<unsigned long long>(hash));
  return hash;
}

uint64_t train_rank(ebb::Ranks& rank) try {
  return train(&rank);
} catch (const std::exception& error) {
  rank.fail(error.what());  // so that the other ranks do not wait for this one
  throw;
}

}  // namespace

int main() {
  try {
    ebb::ThreadRanks ranks(2);
    const uint64_t one = train(nullptr);
    auto other = std::async(std::launch::async, [&] { return train_rank(ranks.rank(1)); });
    const uint64_t own = train_rank(ranks.rank(0));
    const bool is_same = own == one && other.get() == one;
    std::printf("two ranks have %s one\n", is_same ? "the bits of" : "other bits than");
    return is_same ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

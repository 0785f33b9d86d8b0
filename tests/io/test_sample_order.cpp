#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "device/errors.h"
#include "io/sample_order.h"

namespace ebb {
namespace {

std::vector<uint64_t> epoch_of(const SampleOrder& order, uint64_t epoch) {
  std::vector<uint64_t> samples(order.num_samples());
  for (uint64_t i = 0; i < samples.size(); ++i) {
    samples[i] = order.sample(epoch * order.num_samples() + i);
  }
  return samples;
}

std::vector<uint64_t> identity(uint64_t n) {
  std::vector<uint64_t> samples(n);
  std::iota(samples.begin(), samples.end(), 0);
  return samples;
}

TEST(SampleOrder, SequentialOrderRepeatsEachEpoch) {
  const SampleOrder order(5, DataOrder::Sequential, 1);
  EXPECT_EQ(epoch_of(order, 0), identity(5));
  EXPECT_EQ(epoch_of(order, 3), identity(5));
  EXPECT_EQ(order.epoch(4), 0u);
  EXPECT_EQ(order.epoch(5), 1u);
}

TEST(SampleOrder, ShuffledOrderVisitsEachSampleOnceAnEpoch) {
  for (const uint64_t n : {1, 2, 3, 4, 5, 15, 16, 17, 64, 65, 1000, 4099}) {
    const SampleOrder order(n, DataOrder::Shuffled, 42);
    for (const uint64_t epoch : {0, 1, 7}) {
      auto samples = epoch_of(order, epoch);
      std::sort(samples.begin(), samples.end());
      EXPECT_EQ(samples, identity(n)) << "n " << n << " epoch " << epoch;
    }
  }
}

TEST(SampleOrder, DependsOnSeedAndEpoch) {
  const SampleOrder order(1000, DataOrder::Shuffled, 1), same(1000, DataOrder::Shuffled, 1);
  const SampleOrder other(1000, DataOrder::Shuffled, 2);
  EXPECT_EQ(epoch_of(order, 0), epoch_of(same, 0));
  EXPECT_NE(epoch_of(order, 0), epoch_of(order, 1));
  EXPECT_NE(epoch_of(order, 0), epoch_of(other, 0));
  EXPECT_NE(epoch_of(order, 0), identity(1000));
}

// A checkpoint continues an order, so the order must be the same in all versions.
TEST(SampleOrder, IsTheSameInAllVersions) {
  const SampleOrder order(10, DataOrder::Shuffled, 1);
  EXPECT_EQ(epoch_of(order, 0), (std::vector<uint64_t>{2, 0, 1, 8, 3, 4, 7, 6, 5, 9}));
}

// The chi-square of the permutations of four samples has 23 degrees of freedom, the mean 23 and the
// standard deviation 6.8.
TEST(SampleOrder, PermutationsAreAboutEquallyLikely) {
  constexpr int kEpochs = 24'000;
  const SampleOrder order(4, DataOrder::Shuffled, 3);
  std::map<std::vector<uint64_t>, int> counts;
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) ++counts[epoch_of(order, epoch)];
  ASSERT_EQ(counts.size(), 24u);
  double chi_square = 0;
  for (const auto& [permutation, count] : counts) {
    const double difference = count - kEpochs / 24.0;
    chi_square += difference * difference / (kEpochs / 24.0);
  }
  EXPECT_LT(chi_square, 23 + 5 * 6.8);
}

// The position of a sample is uniform, and neighbours are separated.
TEST(SampleOrder, PositionsAndNeighboursAreSpread) {
  constexpr uint64_t kSamples = 1000;
  constexpr int kEpochs = 400;
  const SampleOrder order(kSamples, DataOrder::Shuffled, 9);
  double mean = 0;
  int neighbours = 0;
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const auto samples = epoch_of(order, epoch);
    mean += static_cast<double>(samples[0]) / kEpochs;
    for (size_t i = 1; i < samples.size(); ++i) neighbours += samples[i] == samples[i - 1] + 1;
  }
  EXPECT_NEAR(mean, 499.5,
              5 * 288.7 / 20);  // 288.7 is the deviation of one draw; 20 = sqrt(kEpochs)
  EXPECT_NEAR(neighbours / double{kEpochs}, 1,
              0.25);  // (n-1)/n is expected in an epoch, with deviation 1/20
}

TEST(SampleOrder, WorksForSamplesBeyond32Bits) {
  const SampleOrder order((uint64_t{1} << 40) + 1, DataOrder::Shuffled, 5);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_LT(order.sample(i), order.num_samples());
}

TEST(SampleOrder, NeedsASample) {
  EXPECT_THROW(SampleOrder(0, DataOrder::Shuffled, 1), LogicError);
}

}  // namespace
}  // namespace ebb

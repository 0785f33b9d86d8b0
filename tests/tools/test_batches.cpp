#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/tools/run_ebb.h"
#include "tools/batches.h"

namespace ebb {
namespace {

std::vector<int32_t> values(const Tensor& tensor) {
  const auto span = tensor.span<int32_t>();
  return {span.begin(), span.end()};
}

class BatchesTest : public testing::Test {
 protected:
  BatchesTest() {
    std::string text(101, 0);
    std::iota(text.begin(), text.end(), 0);
    data_ = std::make_unique<TokenData>(std::vector{folder_.write("text", text)});
  }
  TemporaryFolder folder_;
  std::unique_ptr<TokenData> data_;
};

TEST_F(BatchesTest, TargetsAreTheNextTokens) {
  Batches batches(*data_, SampleOrder(25, DataOrder::Sequential, 1),
                  {.num_batches = 2, .batch_size = 2, .length = 4});
  const auto loaded = batches.load(1);
  ASSERT_EQ(loaded.size(), 2u);
  ASSERT_EQ(loaded[0].inputs.size(), 3u);
  EXPECT_EQ(loaded[0].num_targets, 8u);
  EXPECT_EQ(loaded[0].inputs[0].shape, (Shape{2, 4}));
  EXPECT_EQ(values(loaded[0].inputs[0]), (std::vector{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(values(loaded[0].inputs[1]), (std::vector{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(values(loaded[0].inputs[2]), (std::vector{5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(values(loaded[1].inputs[0]), (std::vector{12, 13, 14, 15, 16, 17, 18, 19}));
}

TEST_F(BatchesTest, GoOnIntoTheNextEpoch) {
  Batches batches(*data_, SampleOrder(25, DataOrder::Sequential, 1),
                  {.num_batches = 1, .batch_size = 2, .length = 4});
  const auto loaded = batches.load(24);
  EXPECT_EQ(values(loaded[0].inputs[0]), (std::vector{96, 97, 98, 99, 0, 1, 2, 3}));
  EXPECT_EQ(values(loaded[0].inputs[2]), (std::vector{97, 98, 99, 100, 1, 2, 3, 4}));
}

// Only B * K counts, not how it is split.
TEST_F(BatchesTest, TheSplitDoesNotChangeTheSamples) {
  std::vector<std::vector<int32_t>> tokens;
  for (const int64_t num_batches : {1, 2, 3, 6}) {
    Batches batches(*data_, SampleOrder(25, DataOrder::Shuffled, 7),
                    {.num_batches = num_batches, .batch_size = 6 / num_batches, .length = 4});
    std::vector<int32_t> all;
    for (const MicroBatch& batch : batches.load(18)) {
      const auto part = values(batch.inputs[0]);
      all.insert(all.end(), part.begin(), part.end());
    }
    tokens.push_back(all);
  }
  for (const auto& other : tokens) EXPECT_EQ(other, tokens[0]);
}

}  // namespace
}  // namespace ebb

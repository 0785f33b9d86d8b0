#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "tests/bytes_of.h"
#include "tests/tools/run_ebb.h"
#include "tools/batches.h"
#include "tools/held_out.h"

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
    data_ = std::make_unique<TokenData>(std::vector{folder_.write("text", text)}, TokenType::Bytes);
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

TEST_F(BatchesTest, ContinueIntoTheNextEpoch) {
  Batches batches(*data_, SampleOrder(25, DataOrder::Sequential, 1),
                  {.num_batches = 1, .batch_size = 2, .length = 4});
  const auto loaded = batches.load(24);
  EXPECT_EQ(values(loaded[0].inputs[0]), (std::vector{96, 97, 98, 99, 0, 1, 2, 3}));
  EXPECT_EQ(values(loaded[0].inputs[2]), (std::vector{97, 98, 99, 100, 1, 2, 3, 4}));
}

// The samples depend only on the product of micro-batch size and number of micro-batches.
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

// In one pass over the data, rows without a sample have no targets.
TEST_F(BatchesTest, TheFirstEpochIsFilledUpWithoutTargets) {
  Batches batches(*data_, SampleOrder(25, DataOrder::Sequential, 1),
                  {.num_batches = 2, .batch_size = 2, .length = 4});
  const auto loaded = batches.load_in_first_epoch(22);
  EXPECT_EQ(values(loaded[0].inputs[2]), (std::vector{89, 90, 91, 92, 93, 94, 95, 96}));
  EXPECT_EQ(values(loaded[1].inputs[2]), (std::vector{97, 98, 99, 100, -100, -100, -100, -100}));
  EXPECT_EQ(loaded[0].num_targets, 8u);
  EXPECT_EQ(loaded[1].num_targets, 4u);
  EXPECT_EQ(num_targets(batches.load(22)), 16u);
  EXPECT_EQ(num_batches_for(25, 4), 7u);
  EXPECT_EQ(num_batches_for(24, 4), 6u);
}

class AnnotatedBatches : public BatchesTest {
 protected:
  template <class T>
  std::string write_values(const std::string& name, const std::vector<T>& values) const {
    return folder_.write(name, test::bytes_of(values));
  }
  const DocumentFile& documents(const std::vector<int64_t>& offsets) {
    documents_ = std::make_unique<DocumentFile>(write_values("documents", offsets), 101);
    return *documents_;
  }
  /// The label of token i is i + 100, but every third label is ignored.
  const LabelFile& labels() {
    std::vector<int32_t> values(101, kIgnoredLabel);
    for (int32_t i = 0; i < 101; ++i) {
      if (i % 3 != 0) values[static_cast<size_t>(i)] = i + 100;
    }
    labels_ = std::make_unique<LabelFile>(write_values("labels", values), 101, 256);
    return *labels_;
  }

  SampleOrder order_{25, DataOrder::Sequential, 1};
  BatchShape shape_{.num_batches = 2, .batch_size = 2, .length = 4};
  std::vector<InputSpec> packed_ = {
      {"tokens", {2, 4}}, {"positions", {2, 4}}, {"targets", {2, 4}}, {"document_starts", {2, 4}}};
  std::unique_ptr<DocumentFile> documents_;
  std::unique_ptr<LabelFile> labels_;
};

TEST_F(AnnotatedBatches, LabelsAreTheTargets) {
  Batches batches({*data_, &labels()}, order_, shape_);
  const auto loaded = batches.load(0);
  EXPECT_EQ(values(loaded[0].inputs[0]), (std::vector{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(values(loaded[0].inputs[2]), (std::vector{-100, 101, 102, -100, 104, 105, -100, 107}));
  EXPECT_EQ(loaded[0].num_targets, 5u);
  EXPECT_EQ(loaded[1].num_targets, 5u);  // the labels of tokens 8 to 15
  EXPECT_EQ(num_targets(loaded), 10u);
}

TEST_F(AnnotatedBatches, DocumentsLimitPositionsAndNextTokens) {
  // Rows: 4 5|6 7, 8 9 10 11, |12 13 14|15, 16 17 18 19.
  Batches batches({*data_, nullptr, &documents({0, 6, 12, 15})}, order_, shape_, packed_);
  const auto loaded = batches.load(1);
  ASSERT_EQ(loaded[0].inputs.size(), 4u);
  EXPECT_EQ(values(loaded[0].inputs[0]), (std::vector{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(values(loaded[0].inputs[1]), (std::vector{0, 1, 0, 1, 0, 1, 2, 3}));
  EXPECT_EQ(values(loaded[0].inputs[2]), (std::vector{5, -100, 7, 8, 9, 10, 11, -100}));
  EXPECT_EQ(values(loaded[0].inputs[3]), (std::vector{0, 0, 2, 2, 0, 0, 0, 0}));
  EXPECT_EQ(loaded[0].num_targets, 6u);
  EXPECT_EQ(values(loaded[1].inputs[1]), (std::vector{0, 1, 2, 0, 0, 1, 2, 3}));
  EXPECT_EQ(values(loaded[1].inputs[2]), (std::vector{13, 14, -100, 16, 17, 18, 19, 20}));
  EXPECT_EQ(values(loaded[1].inputs[3]), (std::vector{0, 0, 0, 3, 0, 0, 0, 0}));
  const auto again = batches.load(8);  // tokens 32 to 47, all in one document
  EXPECT_EQ(values(again[0].inputs[1]), (std::vector{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(values(again[0].inputs[3]), std::vector(8, 0));
  EXPECT_EQ(again[0].num_targets, 8u);
}

TEST_F(AnnotatedBatches, LabelsAreUsedAtTheEndOfDocuments) {
  Batches batches({*data_, &labels(), &documents({0, 2, 6})}, order_, shape_, packed_);
  const auto loaded = batches.load(0);
  EXPECT_EQ(values(loaded[0].inputs[1]), (std::vector{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(values(loaded[0].inputs[2]), (std::vector{-100, 101, 102, -100, 104, 105, -100, 107}));
}

TEST_F(AnnotatedBatches, InputsAreThoseOfTheModel) {
  const std::vector<InputSpec> bert = {{"tokens", {2, 4}},
                                       {"positions", {2, 4}},
                                       {"targets", {2, 4}},
                                       {"token_types", {2, 4}},
                                       {"document_starts", {2, 4}}};
  Batches batches({*data_, &labels()}, order_, shape_, bert);
  const auto loaded = batches.load(3);
  ASSERT_EQ(loaded[1].inputs.size(), 5u);
  EXPECT_EQ(values(loaded[1].inputs[0]), (std::vector{20, 21, 22, 23, 24, 25, 26, 27}));
  EXPECT_EQ(values(loaded[1].inputs[3]), std::vector(8, 0));
  EXPECT_EQ(values(loaded[1].inputs[4]), std::vector(8, 0)) << "a row is one document";
  const std::vector<InputSpec> other = {{"pixels", {2, 4}}};
  EXPECT_THROW(Batches(*data_, order_, shape_, other), LogicError);
}

/// Samples of 4 tokens. There are fewer than 7 * 11 * 13 of them, so no two have equal tokens.
std::string different_samples(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    for (const int period : {7, 11, 13, 1}) text += static_cast<char>(i % period);
  }
  return text + '.';
}

class HeldOut : public testing::Test {
 protected:
  SplitSamples split(const std::string& text, double share) {
    return split_samples(TokenData(std::vector{folder_.write("text", text)}, TokenType::Bytes), 4,
                         share);
  }
  TemporaryFolder folder_;
};

TEST_F(HeldOut, EverySampleIsOnOneSide) {
  const auto [training, held_out] = split(different_samples(1000), 0.2);
  EXPECT_GT(held_out.size(), 150u);
  EXPECT_LT(held_out.size(), 250u);
  std::vector<uint64_t> all, expected(1000);
  std::ranges::merge(training, held_out, std::back_inserter(all));
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
}

TEST_F(HeldOut, AppendedDataMovesNoSample) {
  const auto before = split(different_samples(300), 0.2), now = split(different_samples(1000), 0.2);
  for (const auto side : {&SplitSamples::training, &SplitSamples::held_out}) {
    const std::vector<uint64_t>& old = before.*side;
    ASSERT_LT(old.size(), (now.*side).size());
    EXPECT_TRUE(std::ranges::equal(old, std::span(now.*side).first(old.size())));
  }
}

TEST_F(HeldOut, EqualSamplesAreOnOneSide) {
  const std::string text = different_samples(300);
  const auto [training, held_out] = split(text.substr(0, 1200) + text, 0.2);
  for (const auto& side : {training, held_out}) {
    for (const uint64_t sample : side) {
      EXPECT_TRUE(std::ranges::binary_search(side, (sample + 300) % 600)) << sample;
    }
  }
}

}  // namespace
}  // namespace ebb

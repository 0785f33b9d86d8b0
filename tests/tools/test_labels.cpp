// Labels and documents on the command line: a run trains on the targets that the files contain.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>

#include "device/ignored_label.h"
#include "io/json_file.h"
#include "io/json_text.h"
#include "tests/bytes_of.h"
#include "tests/model_zoo/hf_folder.h"
#include "tests/tools/checkpoint_runs.h"

namespace ebb::test {
namespace {

constexpr double kTolerance = 1e-5;  // relative, between a loss in fp32 and in fp64

// ---- Runs of a toy model on text ----

class LabelRuns : public CheckpointRuns {
 protected:
  static constexpr size_t kNumTokens = 22 * 32 + 1;  // in the text

  /// Returns the next token as the label of each token. The last token has no label.
  std::vector<int32_t> next_tokens() const {
    const std::string text = content_of(text_);
    std::vector<int32_t> labels(kNumTokens, kIgnoredLabel);
    for (size_t i = 0; i + 1 < kNumTokens; ++i) labels[i] = static_cast<uint8_t>(text[i + 1]);
    return labels;
  }
  std::string labels(const std::string& name, const std::vector<int32_t>& values) const {
    return folder_.write(name, bytes_of(values));
  }
  std::string documents(const std::vector<int64_t>& offsets) const {
    return folder_.write("documents", bytes_of(offsets));
  }
  /// Writes documents of `length` tokens each; the last may be shorter.
  std::string documents_of(int64_t length) const {
    std::vector<int64_t> offsets;
    for (int64_t i = 0; i < static_cast<int64_t>(kNumTokens); i += length) offsets.push_back(i);
    return documents(offsets);
  }
  std::string hash_of(const Arguments& more) const {
    succeed(train(more));
    return log().back()["state_hash"];
  }
};

TEST_F(LabelRuns, NextTokensAsLabelsAreTheDefault) {
  const std::string labels_file = labels("labels", next_tokens());
  EXPECT_EQ(hash_of({"--steps", "2", "--labels", labels_file}), hash_of({"--steps", "2"}));
  std::vector<int32_t> others = next_tokens();
  others[100] = kIgnoredLabel;
  EXPECT_NE(hash_of({"--steps", "5", "--labels", labels("others", others)}),
            hash_of({"--steps", "5"}));
}

// A row contains one document of 32 tokens, or two that do not attend to each other.
TEST_F(LabelRuns, PackedDocumentsHaveTheBitsOfUnpackedOnes) {
  std::vector<int32_t> within = next_tokens();
  for (size_t i = 31; i < kNumTokens; i += 32) within[i] = kIgnoredLabel;
  const std::string unpacked = labels("labels", within);
  const std::string packed = documents_of(32);
  for (const char* preset : {"toy-bytes", "llama-toy-bytes"}) {
    for (const char* dtype : {"fp32", "bf16"}) {
      const Arguments common = {"--preset", preset,       "--dtype", dtype,
                                "--order",  "sequential", "--steps", "4"};
      const auto with = [&](const Arguments& more) { return hash_of(common + more); };
      const std::string alone =
          with({"--labels", unpacked, "--seq-length", "32", "--micro-batch-size", "4"});
      const Arguments two = {"--seq-length", "64", "--micro-batch-size", "2"};
      const auto two_with = [&](const Arguments& more) { return with(more + two); };
      SCOPED_TRACE(std::string(preset) + " " + dtype);
      EXPECT_EQ(two_with({"--documents", packed}), alone);
      EXPECT_EQ(two_with({"--documents", packed, "--labels", unpacked}), alone);
      EXPECT_NE(two_with({"--labels", unpacked}), alone)
          << "without documents, tokens attend to the other document";
    }
  }
}

TEST_F(LabelRuns, ASmallerBudgetGivesTheSameBits) {
  std::vector<int32_t> some = next_tokens();
  for (size_t i = 0; i < kNumTokens; i += 1 + i % 5) some[i] = kIgnoredLabel;
  const Arguments common = {"--steps",     "2",
                            "--labels",    labels("labels", some),
                            "--documents", documents({0, 7, 8, 50, 51, 333, 704})};
  const auto with = [&](const Arguments& more) { return hash_of(common + more); };
  const std::string all = with({});
  EXPECT_EQ(
      with({"--device-memory", "4MiB", "--micro-batch-order", "vertical", "--recompute", "block"}),
      all);
  EXPECT_EQ(with({"--device-memory", "4MiB", "--micro-batch-order", "horizontal"}), all);
}

TEST_F(LabelRuns, AResumedRunHasTheSameBits) {
  std::vector<int32_t> some = next_tokens();
  for (size_t i = 0; i < kNumTokens; i += 3) some[i] = kIgnoredLabel;
  const std::string labels_file = labels("labels", some);
  const std::string documents_file = documents({0, 30, 45, 300});
  const Arguments flags = {"--labels",       labels_file, "--documents",      documents_file,
                           "--eval-data",    text_,       "--eval-labels",    labels_file,
                           "--eval-steps",   "4",         "--eval-documents", documents_file,
                           "--eval-batches", "2"};
  const auto with = [&](const Arguments& more) { return train(more + flags); };
  succeed(with({}));
  const auto uninterrupted = log();
  succeed(with({"--save", save(), "--save-steps", "3"}));
  // Two copies of the checkpoint of step 3, as if the run had been interrupted after it.
  const std::string first = path("first/step-3"), second = path("second/step-3");
  std::filesystem::create_directory(path("first"));
  std::filesystem::create_directory(path("second"));
  std::filesystem::copy(saved(3), second);
  std::filesystem::rename(saved(3), first);
  const Outcome resumed = succeed({"train", "--resume", first});
  EXPECT_EQ(log(), uninterrupted);
  EXPECT_EQ(resumed.err.find("its results differ"), std::string::npos) << resumed.err;
  // Other labels change the results, so they are reported.
  some[1] = kIgnoredLabel;
  const Outcome other = succeed({"train", "--resume", second, "--labels", labels("others", some)});
  EXPECT_SAYS(other.err, "--labels was " + labels_file + " and is");
}

TEST_F(LabelRuns, AStepWithoutLabelsIsReportedAndUpdatesNothing) {
  std::vector<int32_t> some = next_tokens();
  std::fill_n(some.begin(), 8 * 32, kIgnoredLabel);  // all labels of the first step
  const Arguments common = {"--labels", labels("labels", some), "--order", "sequential"};
  const auto with = [&](const Arguments& more) { return succeed(train(common + more)); };
  const Outcome outcome = with({"--steps", "2"});
  EXPECT_SAYS(outcome.err, "step 1: all labels of its 256 tokens are -100");
  const auto lines = log();
  EXPECT_TRUE(lines[0].at("loss").is_null());
  EXPECT_TRUE(lines[0].at("grad_norm").is_null());
  EXPECT_GT(lines[1].at("loss").get<double>(), 1);
  with({"--steps", "1", "--lr", "1e-3"});
  const auto one_way = log().back()["state_hash"];
  with({"--steps", "1", "--lr", "1e-2"});
  EXPECT_EQ(log().back()["state_hash"], one_way) << "there must be no update";
}

#define EXPECT_REFUSED(outcome, part)               \
  do {                                              \
    const Outcome refused = (outcome);              \
    EXPECT_EQ(refused.exit_code, 2) << refused.err; \
    EXPECT_SAYS(refused.err, part);                 \
  } while (false)

TEST_F(LabelRuns, FilesThatDoNotFitAreRefused) {
  std::vector<int32_t> values = next_tokens();
  values.pop_back();
  EXPECT_REFUSED(run(train({"--labels", labels("short", values)})),
                 "has 704 labels, the data has 705 tokens");
  values.push_back(256);
  const Outcome outside = run(train({"--labels", labels("outside", values)}));
  EXPECT_REFUSED(outside, "label 704 is 256: allowed are 0 to 255");
  EXPECT_SAYS(outside.err, path("outside"));
  EXPECT_REFUSED(run(train({"--labels", folder_.write("cut", bytes_of(values).substr(2))})),
                 "the file ends within label 704");
  EXPECT_REFUSED(run(train({"--documents", documents({0, 9, 9})})), "offset 2 is 9");
  EXPECT_REFUSED(run(train({"--documents", documents({0, 705})})), "offset 1 is 705");
  EXPECT_REFUSED(run(train({"--labels", ""})), "--labels ''");
  EXPECT_REFUSED(run(train({"--eval-labels", text_})), "--eval-labels needs --eval-data");
  EXPECT_REFUSED(run(train({"--eval-documents", text_})), "--eval-documents needs --eval-data");
  EXPECT_EQ(run(train({"--labels", path("none")})).exit_code, 2);
  // All labels are after the tokens that the evaluation uses.
  std::fill_n(values.begin(), 600, kIgnoredLabel);
  values.back() = kIgnoredLabel;
  EXPECT_REFUSED(run(train({"--eval-data", text_, "--eval-labels", labels("late", values),
                            "--eval-batches", "3"})),
                 "the labels of all 384 tokens of an evaluation are -100");
}

// ---- Models with losses that transformers computed in fp64 ----

struct Batch {
  std::vector<int32_t> tokens, targets;
  double loss = 0;

  double num_targets() const {
    return static_cast<double>(targets.size()) -
           static_cast<double>(std::ranges::count(targets, kIgnoredLabel));
  }
};

/// Reference losses of three batches of 2 x 11 tokens, with 17, 20 and 18 targets.
class LabelsOfFolder : public testing::TestWithParam<const char*> {
 protected:
  LabelsOfFolder() {
    const nlohmann::json json = read_json_file(model() + "/losses.json");
    const auto losses = json.at(is_bert() ? "losses_of_type_0" : "losses");
    for (const auto& batch : json.at("batches")) {
      batches_.push_back({batch.at("tokens"), batch.at("targets"), losses.at(batches_.size())});
    }
  }
  static bool is_bert() { return std::string(GetParam()) == "bert"; }
  static std::string model() { return hf_folder(GetParam()); }

  /// Returns the loss of the first step, which uses the weights of the folder.
  double loss_of_step(const Arguments& split) const {
    std::string text;
    std::vector<int32_t> labels;
    for (const Batch& batch : batches_) {
      text.append(batch.tokens.begin(), batch.tokens.end());
      labels.insert(labels.end(), batch.targets.begin(), batch.targets.end());
    }
    labels.push_back(kIgnoredLabel);
    text += '\0';  // a sample must have a next token, even if it is not used
    Arguments arguments = {"train",
                           "--model",
                           model(),
                           "--data",
                           folder_.write("text", text),
                           "--token-type",
                           "bytes",
                           "--labels",
                           folder_.write("labels", bytes_of(labels)),
                           "--seq-length",
                           "11",
                           "--order",
                           "sequential",
                           "--dtype",
                           "fp32",
                           "--device",
                           "host",
                           "--steps",
                           "1",
                           "--threads",
                           "2",
                           "--log",
                           log_,
                           "--chunk-size",
                           "256KiB"};
    arguments += split;
    const Outcome outcome = run_ebb(arguments, folder_.path());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::string log = content_of(log_);
    return parse_json(log.substr(0, log.find('\n'))).at("loss");
  }
  double mean_loss() const {
    double sum = 0, count = 0;
    for (const Batch& batch : batches_) {
      if (batch.num_targets() == 0) continue;
      sum += batch.loss * batch.num_targets();
      count += batch.num_targets();
    }
    return sum / count;
  }

  TemporaryFolder folder_;
  std::string log_ = (folder_.path() / "log").string();
  std::vector<Batch> batches_;
};

TEST_P(LabelsOfFolder, TheMeanIsOverTheLabelsOfTheWholeStep) {
  const double mean = mean_loss();
  const double mean_of_means = (batches_[0].loss + batches_[1].loss + batches_[2].loss) / 3;
  ASSERT_GT(std::abs(mean_of_means / mean - 1), 10 * kTolerance)
      << "the two means must differ, or the test cannot fail";
  const Arguments splits[] = {{"--micro-batch-size", "2", "--gradient-accumulation", "3"},
                              {"--micro-batch-size", "1", "--gradient-accumulation", "6"},
                              {"--micro-batch-size", "6"}};
  for (const Arguments& split : splits) {
    EXPECT_NEAR(loss_of_step(split) / mean, 1, kTolerance)
        << split[1] << " samples per micro-batch";
  }
}

TEST_P(LabelsOfFolder, AMicroBatchWithoutLabelsIsNotCounted) {
  std::ranges::fill(batches_[1].targets, kIgnoredLabel);
  for (const char* order : {"horizontal", "vertical"}) {
    EXPECT_NEAR(loss_of_step({"--micro-batch-size", "2", "--gradient-accumulation", "3",
                              "--micro-batch-order", order}) /
                    mean_loss(),
                1, kTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LabelsOfFolder, testing::Values("gpt2", "llama", "bert"),
                         [](const auto& test) { return std::string(test.param); });

class BertRuns : public LabelRuns {
 protected:
  Arguments bert(const Arguments& more) const {
    Arguments arguments = {"train",
                           "--model",
                           hf_folder("bert"),
                           "--init",
                           "random",
                           "--data",
                           data_,
                           "--token-type",
                           "bytes",
                           "--device",
                           "host",
                           "--threads",
                           "2",
                           "--log",
                           log_,
                           "--chunk-size",
                           "256KiB",
                           "--seq-length",
                           "15",
                           "--micro-batch-size",
                           "8",
                           "--lr",
                           "2e-2"};
    return arguments + more;
  }

  /// Token i is i * 7 mod 36. Every fifth token is replaced by the mask token 36 and is its label.
  void SetUp() override {
    LabelRuns::SetUp();
    std::string text;
    std::vector<int32_t> labels(15 * 40 + 1, kIgnoredLabel);
    for (size_t i = 0; i < labels.size(); ++i) {
      const auto token = static_cast<int32_t>(i * 7 % 36);
      if (i % 5 == 2) labels[i] = token;
      text += static_cast<char>(i % 5 == 2 ? 36 : token);
    }
    data_ = folder_.write("masked", text);
    labels_ = folder_.write("masked.labels", bytes_of(labels));
  }

  std::string data_, labels_;
};

TEST_F(BertRuns, LearnToPredictMaskedTokens) {
  succeed(bert({"--labels", labels_, "--steps", "150", "--eval-data", data_, "--eval-labels",
                labels_, "--eval-steps", "150"}));
  const auto lines = log();
  EXPECT_NEAR(lines.front().at("loss").get<double>(), std::log(37), 0.3);
  EXPECT_LT(lines.at(149).at("loss").get<double>(), 1);
  EXPECT_LT(lines.at(149).at("eval_loss").get<double>(), 1);
}

TEST_F(BertRuns, NeedLabels) {
  EXPECT_REFUSED(run(bert({})), "give --labels FILE");
  EXPECT_REFUSED(run(bert({"--labels", labels_, "--eval-data", data_})), "give --eval-labels FILE");
}

}  // namespace
}  // namespace ebb::test

// The commands `ebb eval` and `ebb generate`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "io/json_text.h"
#include "tests/bytes_of.h"
#include "tests/model_zoo/hf_folder.h"
#include "tests/model_zoo/python.h"
#include "tests/tools/run_ebb.h"

namespace ebb {
namespace {

using test::bytes_of;
using test::hf_folder;

class InferenceCommands : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 83; ++i) tokens_.push_back(static_cast<uint16_t>(i * i % 37));
    data_ = folder_.write("data.bin", bytes_of(tokens_));
  }
  Outcome run(Arguments arguments, const Arguments& more) const {
    const Arguments always = {"--chunk-size", "256KiB", "--threads", "1",
                              "--device",     "host",   "--dtype",   "fp32"};
    return run_ebb(arguments + always + more, folder_.path());
  }
  Outcome eval(const Arguments& more) const {
    return run({"eval", "--data", data_, "--token-type", "u16", "--seq-length", "8",
                "--micro-batch-size", "3"},
               more);
  }
  Outcome generate(const Arguments& more) const { return run({"generate"}, more); }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  TemporaryFolder folder_;
  std::vector<uint16_t> tokens_;
  std::string data_;
};

/// Returns the data of a .npy file after its header, and expects this type and shape.
template <class T>
std::vector<T> npy(const std::string& path, const std::string& descr, const std::string& shape) {
  const std::string content = content_of(path);
  EXPECT_EQ(content.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const size_t size = static_cast<unsigned char>(content[8]) +
                      (size_t{static_cast<unsigned char>(content[9])} << 8);
  EXPECT_EQ((10 + size) % 64, 0u);
  const std::string header = content.substr(10, size);
  EXPECT_SAYS(header, "'descr': '" + descr + "'");
  EXPECT_SAYS(header, "'shape': " + shape);
  EXPECT_EQ(header.back(), '\n');
  std::vector<T> values((content.size() - 10 - size) / sizeof(T));
  std::memcpy(values.data(), content.data() + 10 + size, values.size() * sizeof(T));
  return values;
}

// 83 tokens are 10 samples of 8: four micro-batches, of which the last has one sample.
TEST_F(InferenceCommands, EvalGivesTheMeanLossOfAllSamples) {
  for (const char* name : {"gpt2", "llama"}) {
    const Outcome outcome = eval({"--model", hf_folder(name)});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_SAYS(outcome.err, "weights: loaded");
    test::LoadedModel model(hf_folder(name), 10, 8, DType::F32);
    test::HfLosses::Batch batch;
    for (size_t i = 0; i < 80; ++i) {
      batch.tokens.push_back(tokens_[i]);
      batch.targets.push_back(tokens_[i + 1]);
    }
    EXPECT_NEAR(number_of(outcome, "loss"), model.loss(batch), 1e-6);
    EXPECT_DOUBLE_EQ(number_of(outcome, "perplexity"), std::exp(number_of(outcome, "loss")));
    EXPECT_EQ(number_of(outcome, "labels"), 80);
    EXPECT_EQ(number_of(outcome, "samples"), 10);
  }
}

TEST_F(InferenceCommands, EvalWritesLogitsAndLogProbabilities) {
  const Outcome outcome = eval({"--model", hf_folder("qwen3"), "--logits", path("logits.npy"),
                                "--log-probs", path("log_probs.npy")});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto logits = npy<float>(path("logits.npy"), "<f4", "(3, 8, 37)");
  const auto log_probs = npy<double>(path("log_probs.npy"), "<f8", "(10,)");
  ASSERT_EQ(logits.size(), 3u * 8 * 37);
  ASSERT_EQ(log_probs.size(), 10u);
  double all = 0;
  for (const double p : log_probs) all += p;
  EXPECT_NEAR(-all / 80, number_of(outcome, "loss"), 1e-6);
  for (size_t sample = 0; sample < 3; ++sample) {
    double sum = 0;
    for (size_t i = sample * 8; i < (sample + 1) * 8; ++i) {
      double total = 0;
      for (size_t v = 0; v < 37; ++v) total += std::exp(logits[i * 37 + v]);
      sum += logits[i * 37 + tokens_[i + 1]] - std::log(total);
    }
    EXPECT_NEAR(log_probs[sample], sum, 1e-4) << sample;
  }
}

TEST_F(InferenceCommands, EvalHasTheSameBitsInASmallBudgetAndOtherMicroBatches) {
  const std::string text = std::string(300, 'a') + std::string(90, 'b');
  const Arguments preset = {"--preset",     "llama-toy-bytes",
                            "--data",       folder_.write("text", text),
                            "--token-type", "bytes"};
  const auto with = [&](const Arguments& more) {
    return run({"eval", "--seq-length", "32"}, more + preset);
  };
  const Outcome all = with({});
  ASSERT_EQ(all.exit_code, 0) << all.err;
  const Outcome tight = with({"--device-memory", "2700KiB"});
  ASSERT_EQ(tight.exit_code, 0) << tight.err;
  EXPECT_EQ(tight.out, all.out);
  const Outcome small = with({"--micro-batch-size", "5"});
  EXPECT_NEAR(number_of(small, "loss"), number_of(all, "loss"), 1e-9);
  EXPECT_FAILS(with({"--device-memory", "100KiB"}), 3, "the smallest that works");
}

/// Two samples of the BERT fixture: 17 labels, and an fp64 loss computed by transformers.
TEST_F(InferenceCommands, EvalUsesTheGivenLabels) {
  const auto json = parse_json(content_of(hf_folder("bert") + "/losses.json"));
  std::vector<uint16_t> tokens = json["batches"][0]["tokens"];
  std::vector<int32_t> labels = json["batches"][0]["targets"];
  tokens.push_back(0);
  labels.push_back(-100);
  const Arguments always = {"eval",
                            "--model",
                            hf_folder("bert"),
                            "--token-type",
                            "u16",
                            "--data",
                            folder_.write("bert.bin", bytes_of(tokens)),
                            "--seq-length",
                            "11"};
  EXPECT_FAILS(run(always, {}), 2, "--labels FILE");
  const std::string file = folder_.write("labels", bytes_of(labels));
  for (const char* batch_size : {"1", "2", "3"}) {
    const Outcome outcome = run(always, {"--labels", file, "--micro-batch-size", batch_size});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const double expected = json["losses_of_type_0"][0];
    EXPECT_NEAR(number_of(outcome, "loss"), expected, 1e-5 * expected);
    EXPECT_EQ(number_of(outcome, "labels"), 17);
  }
  const std::string none =
      folder_.write("none", bytes_of(std::vector<int32_t>(tokens.size(), -100)));
  EXPECT_FAILS(run(always, {"--labels", none}), 2, "all 23 of them are -100");
  std::fill_n(labels.begin(), 11, -100);
  const Arguments first = {"--labels",           folder_.write("second", bytes_of(labels)),
                           "--micro-batch-size", "1",
                           "--eval-batches",     "1"};
  EXPECT_FAILS(run(always, first), 2, "all labels of the first 1 samples are -100");
}

/// Samples of 8 tokens in documents of 4. Each half has the loss of a separate sample of 4 tokens
/// without its last target.
TEST_F(InferenceCommands, EvalKeepsDocumentsApart) {
  std::vector<int64_t> documents;
  for (int64_t i = 0; i < 83; i += 4) documents.push_back(i);
  std::vector<int32_t> labels;  // the same targets as with documents
  for (size_t i = 0; i < tokens_.size(); ++i) {
    labels.push_back(i % 4 == 3 || i + 1 == tokens_.size() ? -100 : tokens_[i + 1]);
  }
  const Outcome packed = eval({"--model", hf_folder("llama"), "--documents",
                               folder_.write("documents", bytes_of(documents))});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  const Outcome alone =
      run({"eval", "--data", data_, "--token-type", "u16", "--seq-length", "4"},
          {"--model", hf_folder("llama"), "--labels", folder_.write("labels", bytes_of(labels))});
  EXPECT_EQ(number_of(packed, "labels"), 60);
  EXPECT_NEAR(number_of(packed, "loss"), number_of(alone, "loss"), 1e-6);
  const Outcome whole =
      eval({"--model", hf_folder("llama"), "--labels", folder_.write("labels", bytes_of(labels))});
  EXPECT_GT(std::abs(number_of(packed, "loss") - number_of(whole, "loss")), 1e-3);
}

/// `ebb eval` of a checkpoint prints the loss that the run computed in its evaluation.
TEST_F(InferenceCommands, EvalOfACheckpointAgreesWithTheRunsEvaluation) {
  const Outcome trained =
      run({"train", "--data", data_, "--token-type", "u16", "--seq-length", "8"},
          {"--model", hf_folder("gpt2"), "--steps", "3", "--lr", "1e-2", "--eval-data", data_,
           "--micro-batch-size", "2", "--save", path("runs"), "--log", path("log")});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const std::string log = content_of(path("log"));
  const size_t last = log.rfind("{\"step\"");
  const auto step = parse_json(log.substr(last, log.find('\n', last) - last));
  const Outcome outcome = run({"eval", "--data", data_, "--token-type", "u16", "--seq-length", "8"},
                              {"--model", path("runs/step-3"), "--micro-batch-size", "2"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(number_of(outcome, "loss"), step["eval_loss"].get<double>());
}

TEST_F(InferenceCommands, GenerateContinuesTokens) {
  const Arguments model = {"--model", hf_folder("llama"), "--prompt-tokens", "3,1,4,1,5"};
  const auto with = [&](const Arguments& more) { return generate(more + model); };
  const Outcome greedy = with({"--max-tokens", "9"});
  ASSERT_EQ(greedy.exit_code, 0) << greedy.err;
  EXPECT_EQ(std::count(greedy.out.begin(), greedy.out.end(), ','), 8);
  EXPECT_EQ(greedy.out.back(), '\n');
  EXPECT_SAYS(greedy.err, "added   9 tokens in ");
  EXPECT_SAYS(greedy.err, " (all that --max-tokens 9 allows)\n");
  const Outcome longer = with({"--max-tokens", "12"});
  EXPECT_EQ(longer.out.substr(0, greedy.out.size() - 1),
            greedy.out.substr(0, greedy.out.size() - 1));
  const Arguments sampling = {"--max-tokens", "20",      "--temperature", "3",     "--top-k",
                              "30",           "--top-p", "0.95",          "--seed"};
  const auto sampled = [&](const std::string& seed) {
    Arguments more = sampling;
    more.push_back(seed);
    return with(more).out;
  };
  EXPECT_EQ(sampled("1"), sampled("1"));
  EXPECT_NE(sampled("1"), sampled("2"));
}

TEST_F(InferenceCommands, GenerateStopsAtTheEndOfText) {
  const Arguments text = {"--prompt-tokens", "3,1,4,1,5", "--max-tokens", "9"};
  const auto with = [&](const std::string& model) {
    Arguments more = text;
    more += {"--model", model};
    return generate(more);
  };
  const std::string all = with(hf_folder("llama")).out;
  std::filesystem::copy(hf_folder("llama"), path("ends"));
  const std::string third = all.substr(all.find(',', all.find(',') + 1) + 1);
  const std::string token = third.substr(0, third.find(','));
  folder_.write("ends/generation_config.json", "{\"eos_token_id\": [36, " + token + "]}");
  const std::string ended = with(path("ends")).out;
  EXPECT_LT(ended.size(), all.size());
  EXPECT_EQ(all.rfind(ended.substr(0, ended.size() - 1), 0), 0u) << ended;
  EXPECT_EQ((ended + ",").find("," + token + ","), std::string::npos);
}

TEST_F(InferenceCommands, GenerateContinuesBytesInASmallBudget) {
  const auto with = [&](Arguments more) {
    more += {"--preset", "gpt-6x384-bytes", "--prompt", "Once ", "--max-tokens",
             "4",        "--temperature",   "1"};
    return generate(more);
  };
  const Outcome all = with({});
  ASSERT_EQ(all.exit_code, 0) << all.err;
  EXPECT_EQ(all.out.size(), 5u);
  const Outcome tight = with({"--device-memory", "6MiB"});
  ASSERT_EQ(tight.exit_code, 0) << tight.err;
  EXPECT_EQ(tight.out, all.out);
  EXPECT_FAILS(with({"--device-memory", "1MiB"}), 3, "the smallest that works");
}

TEST_F(InferenceCommands, GenerateSaysThatATextIsLongerThanTheSamples) {
  const std::string text = folder_.write("text", std::string(300, 'x'));
  const Outcome trained = run({"train", "--preset", "toy-bytes", "--data", text},
                              {"--seq-length", "8", "--steps", "1", "--save", path("runs")});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Arguments prompt = {"--model", path("runs"), "--prompt", "xxxx", "--max-tokens"};
  const std::string said = "have 9 tokens, and the samples of the last training had 8";
  EXPECT_SAYS(generate(prompt + Arguments{"5"}).err, said);
  EXPECT_EQ(generate(prompt + Arguments{"4"}).err.find("samples of the last"), std::string::npos);
}

TEST_F(InferenceCommands, GenerateStopsBeforeAText) {
  const auto with = [&](Arguments more) {
    more += {"--preset", "toy-bytes", "--prompt", "Once ", "--max-tokens", "20"};
    return generate(more);
  };
  const std::string all = with({}).out, stop = all.substr(7, 2);
  const Outcome ended = with({"--stop", stop});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, all.substr(0, all.find(stop)) + "\n");
  EXPECT_EQ(with({"--stop", "not in it"}).out, all);
}

/// Skipped if Python has no transformers. EBB_PYTHON names another Python.
TEST_F(InferenceCommands, TextIsThatOfTheTokenizerOfTheModel) {
  EBB_SKIP_WITHOUT_PYTHON("tokenizers, jinja2");
  std::filesystem::copy(hf_folder("llama"), path("words"));
  const std::string script = test::source_path("tests/tools/generate_text.py");
  const std::string command =
      test::python() + " " + script + " " + ebb_binary() + " " + path("words");
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

TEST_F(InferenceCommands, InvalidFlagsAndInputsAreRefused) {
  const std::string gpt2 = hf_folder("gpt2");
  EXPECT_FAILS(run({"eval"}, {"--model", gpt2}), 2, "--data is missing");
  EXPECT_FAILS(eval({}), 2, "--preset or --model is missing");
  EXPECT_FAILS(eval({"--model", hf_folder("bert")}), 2, "masked-language");
  EXPECT_FAILS(eval({"--model", gpt2, "--lr", "1"}), 2, "--lr");
  EXPECT_FAILS(eval({"--model", gpt2, "--logits", path("none/x.npy")}), 1, "none/x.npy");
  EXPECT_FAILS(generate({"--model", gpt2}), 2, "one of --prompt");
  EXPECT_FAILS(generate({"--model", gpt2, "--prompt", "x"}), 2, "--prompt-tokens");
  EXPECT_FAILS(generate({"--preset", "toy-bytes", "--prompt", ""}), 2, "--prompt is empty");
  EXPECT_FAILS(generate({"--preset", "toy-bytes", "--prompt", "x", "--stop", ""}), 2,
               "--stop is empty");
  EXPECT_FAILS(generate({"--model", gpt2, "--prompt-tokens", "1", "--stop", "x"}), 2,
               "--stop needs a text");
  EXPECT_FAILS(generate({"--model", gpt2, "--prompt-tokens", "1,,2"}), 2, "--prompt-tokens");
  EXPECT_FAILS(generate({"--model", gpt2, "--prompt-tokens", "1,37", "--max-tokens", "2"}), 2,
               "token 37");
  EXPECT_FAILS(generate({"--model", gpt2, "--prompt-tokens", "1,2", "--max-tokens", "15"}), 2,
               "leaves 14 of the model's 16 positions");
  EXPECT_FAILS(generate({"--model", gpt2, "--prompt-tokens", "1", "--top-p", "0"}), 2, "--top-p");
  EXPECT_FAILS(
      generate({"--model", hf_folder("bert"), "--prompt-tokens", "1", "--max-tokens", "2"}), 2,
      "does not generate");
}

}  // namespace
}  // namespace ebb

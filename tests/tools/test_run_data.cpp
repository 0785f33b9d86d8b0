// How the data of a run is checked against the flags and the model: what is refused, and what is
// reported.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tests/bytes_of.h"
#include "tests/error_of.h"
#include "tests/model_zoo/hf_folder.h"
#include "tests/tools/command_line.h"
#include "tools/run_data.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using test::bytes_of;
using test::error_of;
using test::hf_folder;

/// A file with llm.c's header, and tokens below 37.
std::string token_file(uint32_t num_tokens) {
  std::vector<uint32_t> header(256);
  header[0] = 20240520, header[1] = 1, header[2] = num_tokens;
  std::vector<uint16_t> tokens;
  for (uint32_t i = 0; i < num_tokens; ++i) tokens.push_back(static_cast<uint16_t>(i * i % 37));
  return bytes_of(header) + bytes_of(tokens);
}

std::string some_json_lines(size_t num_lines) {
  std::string text;
  for (size_t i = 0; i < num_lines; ++i) text += "{\"text\": \"a\"}\n";
  return text;
}

class RunDataTest : public CommandLineTest {
 protected:
  /// The three commands that read data.
  static constexpr const char* kCommands[] = {"train", "eval", "profile"};

  Outcome run_with(const std::string& command, const Arguments& more) const {
    Arguments arguments = {command, "--device",  "host", "--chunk-size", "256KiB", "--seq-length",
                           "8",     "--threads", "1"};
    if (command == "train") arguments += {"--steps", "1"};
    if (command == "profile") {
      arguments += {"--steps", "1", "--trace", path("trace.json")};
    }
    return run(arguments + more);
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
};

// ---- Text for models whose tokens are not bytes ----

TEST_F(RunDataTest, TextIsRefusedForAModelWithoutATokenizer) {
  const std::string model = hf_folder("gpt2");
  const std::string lines = folder_.write("a.jsonl", "{\"text\": \"a\"}\n");
  for (const std::string command : kCommands) {
    for (const std::string& data : {text_, lines}) {
      const Outcome refused = run_with(command, {"--model", model, "--data", data});
      EXPECT_FAILS(refused, 2, "with a vocabulary of 37, has no tokenizer: give --tokenizer DIR");
      EXPECT_SAYS(refused.err, "--data '" + data + "'");
      EXPECT_SAYS(refused.err, "--token-type bytes");
    }
  }
  const Outcome preset = run_with("train", {"--preset", "gpt-6x384", "--data", text_, "--dry-run"});
  EXPECT_FAILS(preset, 2, "give --tokenizer DIR");
  EXPECT_SAYS(preset.err, "--tokenizer train:8192");
  const std::string tokens = folder_.write("t.bin", token_file(100));
  EXPECT_FAILS(run_with("train", {"--model", model, "--data", tokens, "--eval-data", text_}), 2,
               "--eval-data '" + text_ + "' is text");
}

TEST_F(RunDataTest, BytesCanBeChosenForSuchAModel) {
  const std::string low = folder_.write("low", std::string(200, '\x20'));
  for (const std::string command : kCommands) {
    const Outcome outcome =
        run_with(command, {"--model", hf_folder("gpt2"), "--data", low, "--token-type", "bytes"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  }
}

TEST_F(RunDataTest, FilesThatAreNoTextAreRefusedInAllCommands) {
  const std::string packed = folder_.write("a.txt.gz", "\x1f\x8b\x08 packed");
  for (const std::string command : kCommands) {
    EXPECT_FAILS(run_with(command, {"--preset", kToy, "--data", packed}), 2, "gunzip");
  }
  EXPECT_FAILS(run_train({"--eval-data", packed}), 2, "gunzip");
}

TEST_F(RunDataTest, UnusualDataIsReportedInAllCommands) {
  fs::create_directory(path("d"));
  folder_.write("d/a.txt", some_text(1000));
  folder_.write("d/b.jsonl", "{\"text\": \"a\"}\n");
  folder_.write("d/c.txt", "\xef\xbb\xbfmark\n");
  folder_.write("d/empty.txt", "");
  folder_.write("d/.hidden", "x");
  fs::create_symlink("nowhere", path("d/link"));
  for (const std::string command : kCommands) {
    const Outcome outcome =
        run_with(command, {"--preset", kToy, "--data", path("d"), path("d/a.txt")});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    for (const std::string& said :
         Arguments{"1 file is JSON", "tools/tokenize.py", "byte order mark", "1 file is empty",
                   "1 hidden entry is left out; the first: '" + path("d/.hidden") + "'",
                   "1 link is broken and left out", "1 file is read again",
                   "the last 5 tokens fill no sample"}) {
      EXPECT_SAYS(outcome.err, said);
    }
  }
}

/// The braces of a conversation are not what its user wants to teach.
TEST_F(RunDataTest, JsonIsRefusedForAModelOverBytesUnlessItIsOneOfOtherFiles) {
  const std::string lines = some_json_lines(100);
  fs::create_directory(path("only"));
  const std::string in_folder = folder_.write("only/b.jsonl", lines);
  const std::string named = folder_.write("chat.jsonl", lines);
  const std::string unmarked = folder_.write("chat", lines);
  for (const std::string command : kCommands) {
    for (const Arguments& data :
         {Arguments{named}, Arguments{text_, unmarked}, Arguments{path("only")}}) {
      const Outcome refused = run_with(command, Arguments{"--preset", kToy, "--data"} + data);
      EXPECT_FAILS(refused, 2, "is JSON, and the tokens of '" + std::string(kToy) + "' are bytes");
      EXPECT_SAYS(refused.err, data.back());
      EXPECT_SAYS(refused.err, "--tokenizer train:8192");
    }
  }
  EXPECT_EQ(
      run_with("train", {"--preset", kToy, "--data", named, "--token-type", "bytes"}).exit_code, 0);
  EXPECT_FAILS(run_train({"--eval-data", in_folder}), 2, "--eval-data '" + in_folder + "' is JSON");
}

TEST_F(RunDataTest, EvaluationDataIsReportedAgainstTheTrainingData) {
  std::vector<int32_t> labels(20'000, 7);
  const std::string file = folder_.write("labels", bytes_of(labels));
  const std::string documents = folder_.write("documents", bytes_of(std::vector<int64_t>{0}));
  const Outcome outcome =
      run_train({"--dry-run", "--eval-data", text_, "--labels", file, "--documents", documents});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_SAYS(outcome.out, "--eval-data reads '" + text_ + "', which --data reads too");
  EXPECT_SAYS(outcome.out, "--labels is given without --eval-labels");
  EXPECT_SAYS(outcome.out, "--documents is given without --eval-documents");
  EXPECT_SAYS(outcome.out, "an evaluation uses the first 64 samples (--eval-batches 16)");
  const std::string other = folder_.write("other.txt", some_text(300));
  const Outcome apart = run_train({"--dry-run", "--eval-data", other});
  EXPECT_SAYS(apart.out, "300 tokens (bytes); 9 samples, the last 11 tokens fill no");
  EXPECT_SAYS(apart.out, "an evaluation uses all samples");
  EXPECT_EQ(apart.out.find("reads too"), std::string::npos) << apart.out;
  EXPECT_EQ(apart.out.find("is given without"), std::string::npos) << apart.out;
}

// ---- The evaluation of a run ----

/// The last micro-batch may be part full, and less than one micro-batch can be evaluated.
TEST_F(RunDataTest, TheEvaluationOfARunIsThatOfTheCommand) {
  const Arguments common = {"--seq-length", "32",     "--micro-batch-size", "4",
                            "--dtype",      "fp32",   "--device",           "host",
                            "--chunk-size", "256KiB", "--threads",          "2"};
  const auto with = [&](Arguments arguments) {
    arguments += common;
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome;
  };
  int i = 0;
  for (const size_t num_samples : {11, 2, 8, 1}) {
    const std::string name = std::to_string(i++);
    const std::string data = folder_.write("eval" + name, some_text(num_samples * 32 + 9));
    with({"train", "--preset", kToy, "--data", text_, "--eval-data", data, "--steps", "1", "--log",
          log_, "--save", path("save" + name)});
    const Outcome measured =
        with({"eval", "--model", path("save" + name) + "/step-1", "--data", data});
    EXPECT_EQ(number_of(measured, "samples"), static_cast<double>(num_samples));
    EXPECT_NEAR(log_lines()[0].at("eval_loss").get<double>(), number_of(measured, "loss"), 1e-9);
    fs::remove(log_);
  }
  EXPECT_FAILS(run_train({"--eval-data", folder_.write("short", some_text(32))}), 2,
               "--eval-data has 32 tokens, but one sample needs 33");
}

TEST_F(RunDataTest, EvalBatchesLimitTheEvaluation) {
  const std::string data = folder_.write("eval", some_text(11 * 32 + 1));
  const Outcome outcome = run_train(
      {"--dry-run", "--eval-data", data, "--eval-batches", "2", "--micro-batch-size", "4"});
  EXPECT_SAYS(outcome.out, "an evaluation uses the first 8 samples (--eval-batches 2)");
}

/// The labels of the tokens that fill no sample are not evaluated.
TEST_F(RunDataTest, AnEvaluationNeedsLabelsInItsSamples) {
  const std::string data = folder_.write("eval", some_text(2 * 32 + 9));
  std::vector<int32_t> labels(2 * 32 + 9, -100);
  labels.back() = labels[2 * 32 + 1] = 7;
  const std::string late = folder_.write("late", bytes_of(labels));
  EXPECT_FAILS(run_train({"--eval-data", data, "--eval-labels", late}), 2,
               "the labels of all 64 tokens of an evaluation are -100");
}

// ---- Labels that are not shifted ----

class LabelShiftTest : public RunDataTest {
 protected:
  std::string labels_of(const std::string& text, size_t shift, size_t ignored = 0) const {
    std::vector<int32_t> labels(text.size(), -100);
    for (size_t i = ignored; i + shift < text.size(); ++i) {
      labels[i] = static_cast<uint8_t>(text[i + shift]);
    }
    return folder_.write("labels", bytes_of(labels));
  }
  Outcome eval_with(const std::string& text, const std::string& labels) const {
    return run_with("eval",
                    {"--preset", kToy, "--data", folder_.write("t.txt", text), "--labels", labels});
  }
};

TEST_F(LabelShiftTest, LabelsAtTheirOwnTokensAreRefused) {
  const std::string text = some_text(3000);
  EXPECT_FAILS(eval_with(text, labels_of(text, 0)), 2, "are not shifted");
  EXPECT_FAILS(eval_with(text, labels_of(text, 0, 1500)), 2, "1499 of 1499 labels");
  EXPECT_EQ(eval_with(text, labels_of(text, 1)).exit_code, 0);
  EXPECT_EQ(eval_with(text, labels_of(text, 2)).exit_code, 0);
  for (const std::string command : {"train", "profile"}) {
    const Outcome refused = run_with(
        command,
        {"--preset", kToy, "--data", folder_.write("t.txt", text), "--labels", labels_of(text, 0)});
    EXPECT_FAILS(refused, 2, "append(labels[1:], -100)");
  }
  EXPECT_FAILS(run_train({"--eval-data", path("t.txt"), "--eval-labels", path("labels")}), 2,
               "--eval-labels '");
}

TEST_F(LabelShiftTest, OnePercentOfOtherLabelsDecides) {
  const std::string text = some_text(1001);
  for (const auto& [num_others, code] : {std::pair(10, 2), std::pair(11, 0)}) {
    std::vector<int32_t> labels;
    for (const char c : text) labels.push_back(static_cast<uint8_t>(c));
    for (int i = 0; i < num_others; ++i) labels[static_cast<size_t>(i)] = 200;
    EXPECT_EQ(eval_with(text, folder_.write("labels", bytes_of(labels))).exit_code, code);
  }
}

/// A few labels could be equal by chance.
TEST_F(LabelShiftTest, FewLabelsAreReported) {
  const std::string text = some_text(3000);
  EXPECT_FAILS(eval_with(text, labels_of(text, 0, 2899)), 2, "100 of 100 labels");
  const Outcome few = eval_with(text, labels_of(text, 0, 2900));
  EXPECT_EQ(few.exit_code, 0) << few.err;
  EXPECT_SAYS(few.err, "99 of 99 labels equal the token at their own position");
}

TEST_F(LabelShiftTest, LabelsOutsideAllSamplesAreRefused) {
  std::vector<int32_t> labels(8 * 8 + 5, -100);
  for (size_t i = 8 * 8; i < labels.size(); ++i) labels[i] = 7;
  const std::string late = folder_.write("late", bytes_of(labels));
  const std::string data = folder_.write("a.txt", some_text(labels.size()));
  const Arguments flags = {"--preset", kToy, "--data", data, "--labels", late};
  for (const std::string command : kCommands) {
    EXPECT_FAILS(run_with(command, flags), 2, "all labels of the 64 tokens in samples are -100");
  }
  labels[63] = 7;
  folder_.write("late", bytes_of(labels));
  EXPECT_EQ(run_with("eval", flags).exit_code, 0);
}

TEST_F(LabelShiftTest, ATextOfOneTokenIsNotRefused) {
  const std::string same(3000, 'a');
  EXPECT_EQ(eval_with(same, labels_of(same, 1)).exit_code, 0);
  EXPECT_EQ(eval_with(same, labels_of(same, 0)).exit_code, 0) << "both meanings are the same";
  std::string nearly = same;
  nearly[1000] = 'b';
  EXPECT_EQ(eval_with(nearly, labels_of(nearly, 1)).exit_code, 0);
  EXPECT_EQ(eval_with(nearly, labels_of(nearly, 0)).exit_code, 2);
}

// ---- Records of token files ----

class RecordTest : public RunDataTest {
 protected:
  void SetUp() override {
    tokens_ = folder_.write("x.bin", token_file(100));
    eval_tokens_ = folder_.write("y.bin", token_file(50));
  }
  /// Writes the record of x.bin, or of y.bin, with changed fields.
  void record(const nlohmann::json& changes, const std::string& name = "x.bin") const {
    nlohmann::json json = {{"format", "ebb tokens"},
                           {"version", 1},
                           {"num_tokens", name == "x.bin" ? 100 : 50},
                           {"vocabulary", 37},
                           {"tokenizer", "words"},
                           {"sequence_length", nullptr},
                           {"documents", false},
                           {"labels", false}};
    json.update(changes);
    folder_.write(name + ".json", json_text(json));
  }
  Outcome with(const std::string& command, const Arguments& more = {}) const {
    Arguments arguments = {"--model", hf_folder("gpt2"), "--data", tokens_};
    arguments += more;
    return run_with(command, arguments);
  }

  std::string tokens_, eval_tokens_;
};

TEST_F(RecordTest, MatchingRecordsChangeNothing) {
  const std::string without = with("eval").out;
  EXPECT_NE(without, "");
  record(nlohmann::json::object());
  EXPECT_EQ(with("eval").out, without);
  record({{"sequence_length", 8}});
  EXPECT_EQ(with("eval").out, without);
}

TEST_F(RecordTest, OtherSequenceLengthsAreRefused) {
  record({{"sequence_length", 11}});
  for (const std::string command : kCommands) {
    EXPECT_FAILS(
        with(command), 2,
        "give --seq-length 11, or make the token file again with tools/tokenize.py --seq-length 8");
  }
  EXPECT_EQ(with("eval", {"--seq-length", "11"}).exit_code, 2) << "a flag is given once";
  // The default is the smaller of 1024 and the 16 positions of the model.
  const Outcome by_default = run({"eval", "--model", hf_folder("gpt2"), "--data", tokens_});
  EXPECT_FAILS(by_default, 2, "--seq-length is 16");
}

TEST_F(RecordTest, MissingDocumentsAreRefused) {
  record({{"documents", true}});
  for (const std::string command : kCommands) {
    EXPECT_FAILS(with(command), 2, "give --documents '" + path("x.documents") + "'");
  }
  const std::string file = folder_.write("x.documents", bytes_of(std::vector<int64_t>{0, 50}));
  for (const std::string command : kCommands) {
    EXPECT_EQ(with(command, {"--documents", file}).exit_code, 0);
  }
}

/// Data for masked-language models teaches no other model, and the reverse.
TEST_F(RecordTest, TargetsOfAnotherKindOfModelAreRefused) {
  record({{"targets", "masked"}});
  for (const std::string command : kCommands) {
    EXPECT_FAILS(with(command), 2, "its targets are masked words");
  }
  record({{"targets", "next"}});
  EXPECT_EQ(with("eval").exit_code, 0);
  const TokenFile file(tokens_, TokenType::Auto);
  const std::vector<std::string> paths = {tokens_};
  const std::string labels = path("x.labels"), none;
  const DataFlags flags{"--", paths, TokenType::Auto, labels, none};
  const ModelSource masked = preset_source("bert-base");
  TokenRecord record;
  record.path = tokens_ + ".json", record.num_tokens = 100, record.labels = true;
  record.targets = Targets::Next;
  const auto refused = error_of<ConfigError>([&] { check_record(record, file, flags, 8, masked); });
  EXPECT_SAYS(std::string(refused.what()), "its targets are the next tokens");
  EXPECT_SAYS(std::string(refused.what()), tokens_ + ".json");
  record.targets = Targets::Masked;
  check_record(record, file, flags, 8, masked);
  record.targets = Targets::Unknown;
  check_record(record, file, flags, 8, masked);
}

/// Files of an earlier call of tokenize.py belong to other tokens.
TEST_F(RecordTest, FilesThatWereNotMadeWithTheTokensAreRefused) {
  record(nlohmann::json::object());
  const std::string labels = folder_.write("x.labels", bytes_of(std::vector<int32_t>(100, 7)));
  const std::string documents = folder_.write("x.documents", bytes_of(std::vector<int64_t>{0}));
  for (const std::string command : kCommands) {
    EXPECT_FAILS(with(command, {"--labels", labels}), 2, "it was made without labels");
    EXPECT_FAILS(with(command, {"--documents", documents}), 2, "it was made without documents");
  }
  record({{"labels", true}, {"documents", true}});
  EXPECT_EQ(with("eval", {"--labels", labels, "--documents", documents}).exit_code, 0);
}

TEST_F(RecordTest, RecordsOfLinkedFilesAreFound) {
  record({{"sequence_length", 11}});
  fs::create_directory(path("d"));
  fs::create_symlink("../x.bin", path("d/link.bin"));
  fs::create_symlink("d/link.bin", path("again.bin"));
  for (const std::string data : {"d/link.bin", "again.bin", "d"}) {
    const Outcome refused = run_with("eval", {"--model", hf_folder("gpt2"), "--data", path(data)});
    EXPECT_FAILS(refused, 2, "give --seq-length 11");
    EXPECT_SAYS(refused.err, "its record '" + fs::canonical(tokens_).string() + ".json'");
  }
  // A record beside the link comes first.
  fs::copy_file(path("x.bin.json"), path("d/link.bin.json"));
  record(nlohmann::json::object());
  const Outcome refused = run_with("eval", {"--model", hf_folder("gpt2"), "--data", path("d")});
  EXPECT_SAYS(refused.err, "its record '" + path("d/link.bin.json") + "'");
}

/// The rows of the second file would begin within samples.
TEST_F(RecordTest, SeveralFilesOfRowsAreRefused) {
  record({{"sequence_length", 8}});
  for (const std::string command : kCommands) {
    const Outcome refused =
        run_with(command, {"--model", hf_folder("gpt2"), "--data", eval_tokens_, tokens_});
    EXPECT_FAILS(refused, 2, "in one call of `tools/tokenize.py --seq-length 8`");
    EXPECT_SAYS(refused.err, "--data has 2 files");
  }
  record(nlohmann::json::object());
  EXPECT_EQ(
      run_with("eval", {"--model", hf_folder("gpt2"), "--data", eval_tokens_, tokens_}).exit_code,
      0);
}

/// Offsets count over all files: those of the first file alone leave the second without any.
TEST_F(RecordTest, DocumentsOfOneFileAreRefusedForSeveral) {
  const auto with_documents = [&](const std::vector<int64_t>& offsets) {
    return run_with("eval", {"--model", hf_folder("gpt2"), "--data", tokens_, eval_tokens_,
                             "--documents", folder_.write("documents", bytes_of(offsets))});
  };
  record({{"documents", true}});
  record({{"documents", true}}, "y.bin");
  const Outcome refused = with_documents({0, 20});
  EXPECT_FAILS(refused, 2, "a document begins at token 100, the first of '" + eval_tokens_ + "'");
  EXPECT_EQ(with_documents({0, 20, 100, 120}).exit_code, 0);
  EXPECT_FAILS(with_documents({0, 20, 99, 120}), 2, "no such offset");
  // Without records it may be meant.
  fs::remove(path("x.bin.json"));
  fs::remove(path("y.bin.json"));
  const Outcome reported = with_documents({3, 20});
  EXPECT_EQ(reported.exit_code, 0);
  EXPECT_SAYS(reported.err, "ends with offset 20, before the last file of --data begins");
  EXPECT_SAYS(reported.err, "begins with offset 3: the tokens before it are a document too");
  const Outcome usual = with_documents({0, 120});
  EXPECT_EQ(usual.err.find("offset"), std::string::npos) << usual.err;
}

TEST_F(RecordTest, MissingLabelsAreReported) {
  record({{"labels", true}});
  for (const std::string command : kCommands) {
    const Outcome outcome = with(command);
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_SAYS(outcome.err, "'" + tokens_ + "' was made with labels, and --labels is not given");
  }
}

TEST_F(RecordTest, OtherFilesAndVocabulariesAreRefused) {
  record({{"num_tokens", 99}});
  EXPECT_FAILS(with("train"), 2, "says 99 tokens, but the file has 100");
  record({{"vocabulary", 38}});
  const Outcome larger = with("train");
  EXPECT_FAILS(larger, 2, "has 38 tokens, but the model's vocabulary is 37");
  EXPECT_SAYS(larger.err, "'words'");
  record({{"vocabulary", 30}});
  EXPECT_EQ(with("train").exit_code, 0) << "a model may have more rows than its tokenizer";
}

TEST_F(RecordTest, EvaluationDataHasItsOwnFlags) {
  const auto evaluated = [&](const Arguments& more = {}) {
    Arguments arguments = {"--eval-data", eval_tokens_};
    arguments += more;
    return with("train", arguments);
  };
  record({{"documents", true}}, "y.bin");
  EXPECT_FAILS(evaluated(), 2, "give --eval-documents '" + path("y.documents") + "'");
  const std::string file = folder_.write("y.documents", bytes_of(std::vector<int64_t>{0, 9}));
  EXPECT_EQ(evaluated({"--eval-documents", file}).exit_code, 0);
  record({{"labels", true}}, "y.bin");
  EXPECT_SAYS(evaluated().err, "and --eval-labels is not given");
  record({{"sequence_length", 5}}, "y.bin");
  EXPECT_FAILS(evaluated(), 2, "--eval-data '" + eval_tokens_ + "'");
}

TEST_F(RecordTest, AMalformedRecordIsAWrongInput) {
  record({{"targets", "previous"}});
  EXPECT_FAILS(with("eval"), 2, "'" + tokens_ + ".json' at byte 0: targets is \"previous\"");
}

}  // namespace
}  // namespace ebb

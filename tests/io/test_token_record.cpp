// The record beside a token file: its fields, and records that are no records.
#include <nlohmann/json.hpp>

#include "device/errors.h"
#include "io/json_text.h"
#include "io/token_record.h"
#include "tests/io/safetensors_files.h"

namespace ebb::test {
namespace {

using Json = nlohmann::json;

const std::string kPath = "x.bin.json";

Json valid() {
  return {{"format", "ebb tokens"}, {"version", 1},         {"num_tokens", 1000},
          {"vocabulary", 37},       {"tokenizer", "words"}, {"sequence_length", 8},
          {"documents", true},      {"labels", false},      {"targets", "masked"}};
}

TEST(TokenRecords, AreRead) {
  const TokenRecord record = parse_token_record(kPath, json_text(valid()));
  EXPECT_EQ(record.path, kPath);
  EXPECT_EQ(record.num_tokens, 1000u);
  EXPECT_EQ(record.vocabulary, 37u);
  EXPECT_EQ(record.tokenizer, "words");
  EXPECT_EQ(record.sequence_length, 8u);
  EXPECT_TRUE(record.documents);
  EXPECT_FALSE(record.labels);
  EXPECT_EQ(record.targets, Targets::Masked);
  Json old = valid();
  old["sequence_length"] = nullptr;
  old.erase("targets");
  EXPECT_EQ(parse_token_record(kPath, json_text(old)).sequence_length, std::nullopt);
  EXPECT_EQ(parse_token_record(kPath, json_text(old)).targets, Targets::Unknown);
}

TEST(TokenRecords, FieldsThatAreWrongAreNamed) {
  struct Bad {
    const char* name;
    Json value;
    const char* message;
  };
  for (const Bad& bad : {Bad{"format", "other", "format is \"other\"; allowed is \"ebb tokens\""},
                         {"version", 2, "version is 2; allowed is 1"},
                         {"num_tokens", -1, "num_tokens is -1; allowed is a whole number from 0"},
                         {"num_tokens", 1e3, "num_tokens is 1000.0; allowed is a whole number"},
                         {"vocabulary", "37", "vocabulary is \"37\"; allowed is a whole number"},
                         {"tokenizer", 1, "tokenizer is 1; allowed is a text"},
                         {"sequence_length", 0, "allowed is a whole number from 1, or null"},
                         {"documents", 1, "documents is 1; allowed is true or false"},
                         {"labels", nullptr, "labels is null; allowed is true or false"},
                         {"targets", "previous", "allowed is \"next\" or \"masked\""},
                         {"targets", 1, "targets is 1; allowed is \"next\" or \"masked\""}}) {
    Json json = valid();
    json[bad.name] = bad.value;
    const auto error = error_of<FormatError>([&] { parse_token_record(kPath, json_text(json)); });
    EXPECT_EQ(error.path, kPath);
    EXPECT_SAYS(error, bad.message);
    EXPECT_SAYS(error, "make the token file again with tools/tokenize.py");
  }
  const Json all = valid();
  for (const auto& [name, value] : all.items()) {
    if (name == "targets") continue;
    Json json = valid();
    json.erase(name);
    const auto error = error_of<FormatError>([&] { parse_token_record(kPath, json_text(json)); });
    EXPECT_SAYS(error, name + " is missing; allowed is");
  }
}

TEST(TokenRecords, OtherTextsAreRefused) {
  const std::string deep(60'000, '[');
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{"), std::string("7"), std::string("{}"),
        std::string("{\"format\": 1e999}"), deep, deep + std::string(deep.size(), ']')}) {
    EXPECT_EQ(error_of<FormatError>([&] { parse_token_record(kPath, text); }).path, kPath);
  }
}

}  // namespace
}  // namespace ebb::test

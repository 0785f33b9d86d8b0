// The record that tools/tokenize.py writes beside a token file.
#include "io/token_record.h"

#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "io/json_text.h"

namespace ebb::fuzz {

void test_input(Bytes input) {
  const std::string text = text_of(input);
  is_accepted([&] {
    const TokenRecord record = parse_token_record("tokens.bin.json", text);
    note_accepted();
    const nlohmann::json json = parse_json(text);
    require(json.at("num_tokens") == record.num_tokens, "the number of tokens is that of the file");
    require(json.at("vocabulary") == record.vocabulary, "the vocabulary is that of the file");
    require(json.at("documents") == record.documents, "the documents are those of the file");
    require(json.at("labels") == record.labels, "the labels are those of the file");
    require(json.at("tokenizer") == record.tokenizer, "the tokenizer is that of the file");
    const auto& rows = json.at("sequence_length");
    require(record.sequence_length ? rows == *record.sequence_length : rows.is_null(),
            "the length of rows is that of the file");
    require(record.sequence_length.value_or(1) > 0, "rows have tokens");
  });
}

}  // namespace ebb::fuzz

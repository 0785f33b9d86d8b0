// Token files of each type: llm.c's .bin, headerless u16 and u32, bytes, and text.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "fuzz/fuzz.h"
#include "io/token_data.h"

namespace ebb::fuzz {
namespace {

constexpr size_t kAtOnce = 1000;

void read_all(TokenData& data, uint64_t vocabulary, Bytes input) {
  data.limit_to(vocabulary);
  std::vector<int32_t> tokens;
  for (size_t first = 0; first < data.num_tokens(); first += kAtOnce) {
    tokens.resize(std::min(kAtOnce, data.num_tokens() - first));
    data.read(first, tokens);
    for (size_t i = 0; i < tokens.size(); ++i) {
      require(tokens[i] >= 0 && static_cast<uint64_t>(tokens[i]) < vocabulary,
              "tokens are in the vocabulary");
      require(data.type() != TokenType::Bytes ||
                  tokens[i] == std::to_integer<int32_t>(input[first + i]),
              "bytes are those of the file");
    }
  }
}

void check(const std::string& path, TokenType type, Bytes input) {
  is_accepted([&] {
    const TokenData data({path}, type);
    require(data.type() != TokenType::Auto, "the type is known");
    require(data.num_tokens() > 0, "data without tokens is refused");
    require(data.num_tokens() * token_bytes(data.type()) <= input.size(),
            "the tokens are in the file");
  });
  // 2^40 is allowed in a config.json, but tokens are read as int32.
  for (const uint64_t vocabulary : {uint64_t{256}, uint64_t{50257}, uint64_t{1} << 40}) {
    is_accepted([&] {
      TokenData data({path}, type);
      read_all(data, vocabulary, input);
      // Nearly every file can be read as bytes.
      if (type == TokenType::Auto && data.type() != TokenType::Bytes) note_accepted();
    });
  }
}

}  // namespace

void test_input(Bytes input) {
  for (const char* const name : {"tokens.bin", "tokens.txt"}) {
    const std::string path = write_file(name, input);
    for (const auto type : {TokenType::Auto, TokenType::Bytes, TokenType::U16, TokenType::U32}) {
      check(path, type, input);
    }
  }
}

}  // namespace ebb::fuzz

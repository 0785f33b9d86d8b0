// Token files of each type: llm.c's .bin, headerless u16 and u32, bytes, and text.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "fuzz/fuzz.h"
#include "io/token_data.h"

namespace ebb::fuzz {
namespace {

constexpr size_t kAtOnce = 1000;

void read_all(TokenData data, uint64_t vocabulary) {
  data.limit_to(vocabulary);
  std::vector<int32_t> tokens;
  for (size_t first = 0; first < data.num_tokens(); first += kAtOnce) {
    tokens.resize(std::min(kAtOnce, data.num_tokens() - first));
    data.read(first, tokens);
    for (const int32_t token : tokens) {
      require(token >= 0 && static_cast<uint64_t>(token) < vocabulary,
              "tokens are in the vocabulary");
    }
  }
}

void check(const std::string& path, TokenType type, size_t file_bytes) {
  is_accepted([&] {
    const TokenData data({path}, type);
    require(data.type() != TokenType::Auto, "the type is known");
    require(data.num_tokens() > 0, "data without tokens is refused");
    require(data.num_tokens() * token_bytes(data.type()) <= file_bytes,
            "the tokens are in the file");
  });
  // 2^40 is allowed in a config.json, but tokens are read as int32.
  for (const uint64_t vocabulary : {uint64_t{256}, uint64_t{50257}, uint64_t{1} << 40}) {
    is_accepted([&] { read_all(TokenData({path}, type), vocabulary); });
  }
}

}  // namespace

void test_input(Bytes input) {
  for (const char* const name : {"tokens.bin", "tokens.txt"}) {
    const std::string path = write_file(name, input);
    for (const auto type : {TokenType::Auto, TokenType::Bytes, TokenType::U16, TokenType::U32}) {
      check(path, type, input.size());
    }
  }
}

}  // namespace ebb::fuzz

// One file of tokens, mapped into memory: raw bytes, headerless u16/u32, or llm.c's .bin.
//
// Pages are released as soon as they are read, so the resident set of the process does not grow
// with the data. The page cache keeps the pages.
//
// Thread-safety: immutable after construction. Errors: IoError (cannot be opened or mapped),
// FormatError (the content contradicts the header; the file shrank), ConfigError (not a regular
// file; unknown type; a file without a header that cannot contain tokens of the given type).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/mapped_file.h"
#include "io/plain_text.h"

namespace ebb {

enum class TokenType : uint8_t { Auto, Bytes, U16, U32 };

constexpr std::string_view name_of(TokenType type) {
  switch (type) {
    case TokenType::Auto:
      return "auto";
    case TokenType::Bytes:
      return "bytes";
    case TokenType::U16:
      return "u16";
    case TokenType::U32:
      return "u32";
  }
  return "?";
}

constexpr size_t token_bytes(TokenType type) {
  return type == TokenType::U32 ? 4 : type == TokenType::U16 ? 2 : 1;
}

class TokenFile {
 public:
  TokenFile(const std::string& path, TokenType type);

  const std::string& path() const { return path_; }
  /// The type of the tokens in the file, never Auto.
  TokenType type() const { return type_; }
  size_t num_tokens() const { return num_tokens_; }
  /// What the first bytes of the file show.
  Look look() const;

  /// Reads tokens [first, first + out.size()). REQUIRES: these tokens exist; u32 tokens fit int32
  /// (see check_vocabulary()).
  void read(size_t first, std::span<int32_t> out) const;
  /// Throws FormatError that names the first token that is not in [0, vocabulary) or does not fit
  /// int32, if there is one.
  void check_vocabulary(uint64_t vocabulary) const;

 private:
  void interpret(TokenType wanted);
  void interpret_header(TokenType found);
  void check_width() const;
  void check_plain() const;
  const std::byte* token_at(size_t index) const;
  void release_pages(size_t first, size_t count) const;

  std::string path_;
  MappedFile file_;
  TokenType type_ = TokenType::Bytes;
  size_t header_bytes_ = 0;
  size_t num_tokens_ = 0;
};

}  // namespace ebb

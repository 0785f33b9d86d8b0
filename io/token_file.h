// One file of tokens, mapped into memory: raw bytes, headerless u16/u32, or llm.c's .bin.
//
// Pages that were read are given back at once, so the process's resident set does not grow with the
// data; the page cache keeps them.
//
// Thread-safety: immutable after construction.
// Errors: IoError (cannot be opened or mapped), FormatError (content against its header; a file
// that shrank), ConfigError (no regular file, type unknown).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/mapped_file.h"

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
  /// Never Auto: what the file turned out to hold.
  TokenType type() const { return type_; }
  size_t num_tokens() const { return num_tokens_; }
  /// Of bytes: do they begin as text does (plain_text.h)?
  bool is_text() const;

  /// Tokens [first, first + out.size()). REQUIRES: they exist; u32 tokens fit int32
  /// (check_vocabulary() says so).
  void read(size_t first, std::span<int32_t> out) const;
  /// FormatError naming the first token that is not in [0, vocabulary).
  void check_vocabulary(uint32_t vocabulary) const;

 private:
  void interpret(TokenType wanted);
  void interpret_header(TokenType found);
  const std::byte* token_at(size_t index) const;
  void release_pages(size_t first, size_t count) const;

  std::string path_;
  MappedFile file_;
  TokenType type_ = TokenType::Bytes;
  size_t header_bytes_ = 0;
  size_t num_tokens_ = 0;
};

}  // namespace ebb

// One file of tokens: raw bytes, headerless u16/u32, or llm.c's .bin. The file stays open and is
// read where tokens are needed.
//
// Thread-safety: any number of threads may read, but not while limit_to() runs. Errors: those of
// InputFile; FormatError (the content contradicts the header; a token that is not allowed),
// ConfigError (unknown type; a file without a header that cannot contain tokens of the given type).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/input_file.h"
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

/// What the bytes after the beginning of a text show.
struct TextScan {
  uint64_t num_flaws = 0;  ///< bytes that are NUL or not UTF-8
  /// The offset of the first kLookedAtBytes of which more than a tenth are flaws.
  std::optional<uint64_t> no_text_at;
};

class TokenFile {
 public:
  TokenFile(const std::string& path, TokenType type);

  const std::string& path() const { return file_.path(); }
  FileId id() const { return file_.id(); }
  /// The type of the tokens in the file, never Auto.
  TokenType type() const { return type_; }
  size_t num_tokens() const { return num_tokens_; }
  /// What the first bytes of the file show.
  Look look() const;
  /// Reads the bytes after those of look(), up to the end or up to where the file is no text.
  TextScan scan_text() const;

  /// Reads tokens [first, first + out.size()). Throws FormatError if a token was changed since
  /// limit_to() to one that is not allowed. REQUIRES: these tokens exist.
  void read(size_t first, std::span<int32_t> out) const;
  /// Throws FormatError that names the first token that is not in [0, vocabulary) or does not fit
  /// int32, if there is one. Tokens that are read later are checked too. Throws ConfigError if the
  /// tokens are halves of wider ones.
  void limit_to(uint64_t vocabulary);

 private:
  static constexpr uint64_t kMostVocabulary = uint64_t{1} << 31;  // tokens are read as int32

  uint64_t num_allowed() const { return std::min(vocabulary_, kMostVocabulary); }
  void interpret(TokenType wanted);
  void interpret_header(TokenType found, std::span<const std::byte> header);
  void check_width() const;
  void check_plain() const;
  std::vector<std::byte> beginning(size_t most_bytes) const;
  void read_bytes(size_t first, std::span<std::byte> bytes) const;
  bool has_limit() const;
  void check(size_t first, std::span<const std::byte> bytes) const;

  InputFile file_;
  TokenType type_ = TokenType::Bytes;
  size_t header_bytes_ = 0;
  uint64_t vocabulary_ = kMostVocabulary;
  size_t num_tokens_ = 0;
};

}  // namespace ebb

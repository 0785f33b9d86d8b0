// One file of tokens. The file stays open, and read() reads only the tokens that are requested.
//
// The type that is given to the constructor decides how the file is read:
//
//   Bytes     Each byte is a token, including the bytes of a header.
//   U16, U32  Tokens are little-endian. The file has llm.c's header for this type, or no header.
//   Auto      A path that ends in .bin needs llm.c's header, which says U16 or U32. Any other file
//             is read as Bytes.
//
// Thread-safety: any number of threads may read, but not while limit_to() runs. Errors: those of
// InputFile; FormatError (the size of the file does not match the header or the type; the header
// has an unknown version; a token is not allowed); ConfigError (the header says another type; a
// .bin has no header and the type is Auto; the type is U16 or U32 and the file is text or another
// format).
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

/// The result of TokenFile::scan_text(). The scan reads the file in parts of kLookedAtBytes
/// (plain_text.h).
struct TextScan {
  uint64_t num_flaws = 0;  ///< bytes that are NUL or not UTF-8
  /// The offset in the file of the part at which the scan stopped, because the part has more flaws
  /// than kLookedAtBytes / 10. Empty if the scan reached the end of the file.
  std::optional<uint64_t> no_text_at;
};

class TokenFile {
 public:
  /// Opens the file and reads its first bytes. Checks no tokens; limit_to() does this.
  TokenFile(const std::string& path, TokenType type);

  const std::string& path() const { return file_.path(); }
  FileId id() const { return file_.id(); }
  /// The type of the tokens in the file, never Auto.
  TokenType type() const { return type_; }
  size_t num_tokens() const { return num_tokens_; }
  /// Returns look_at() of the first kLookedAtBytes of the file (plain_text.h).
  Look look() const;
  /// Reads the bytes after the first kLookedAtBytes and counts those that are no text. Stops at the
  /// end of the file, or at the first part that is not text.
  TextScan scan_text() const;

  /// Reads tokens [first, first + out.size()). Throws FormatError if one of them is 2^31 or more,
  /// or is outside the vocabulary that limit_to() has set. REQUIRES: these tokens exist.
  void read(size_t first, std::span<int32_t> out) const;
  /// Sets the vocabulary and checks all tokens. Reads the whole file, unless every value of the
  /// type is allowed. Throws FormatError that names the first token that is 2^31 or more or is not
  /// in [0, vocabulary). Throws ConfigError if the tokens seem to be twice as wide as the type.
  /// read() checks the tokens again, because another process may change the file.
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

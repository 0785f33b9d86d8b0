#include "io/token_file.h"

#include <algorithm>
#include <cstring>

#include "device/errors.h"

namespace ebb {
namespace {

// The header of llm.c: 256 int32, of which Ebb reads the magic, the version and the number of
// tokens.
constexpr size_t kHeaderBytes = 1024;
constexpr uint32_t kMagicU16 = 20240520, kMagicU32 = 20240801;
constexpr size_t kScanTokens = size_t{1} << 22;
// Few tokens could have the form of wider ones by chance.
constexpr size_t kLeastWidthTokens = 16;
constexpr uint64_t kMostVocabulary = uint64_t{1} << 31;  // tokens are read as int32

uint32_t word(std::span<const std::byte> bytes, size_t index) {
  uint32_t value;
  std::memcpy(&value, bytes.data() + 4 * index, sizeof value);
  return value;
}

/// The token type in the header; Auto if there is no header.
TokenType announced_type(std::span<const std::byte> bytes) {
  if (bytes.size() < 4) return TokenType::Auto;
  const uint32_t magic = word(bytes, 0);
  return magic == kMagicU16   ? TokenType::U16
         : magic == kMagicU32 ? TokenType::U32
                              : TokenType::Auto;
}

bool known_version(TokenType type, uint32_t version) {
  return version == 1 || (type == TokenType::U32 && version == 7);
}

std::string described(const Look& look) {
  return look.kind.empty() ? ""
                           : " (" + std::string(look.kind) + ": " + std::string(look.advice) + ")";
}

/// "4294967295 (-1 as int32)"
std::string token_text(uint32_t token) {
  const auto as_signed = static_cast<int32_t>(token);
  return std::to_string(token) +
         (as_signed < 0 ? " (" + std::to_string(as_signed) + " as int32)" : "");
}

/// Whether every second token is 0 and some others are not: these are halves of wider tokens.
template <class Tokens>
bool are_halves(const Tokens& tokens) {
  if (tokens.size() < kLeastWidthTokens) return false;
  bool lower = false, upper = false;
  for (size_t i = 0; i < tokens.size(); ++i) (i % 2 == 0 ? lower : upper) |= tokens[i] != 0;
  return lower && !upper;
}

/// Calls body with the tokens at `data` as a span of their integer type.
template <class Body>
auto with_tokens(TokenType type, const std::byte* data, size_t count, const Body& body) {
  switch (type) {
    case TokenType::U32:
      return body(std::span(reinterpret_cast<const uint32_t*>(data), count));
    case TokenType::U16:
      return body(std::span(reinterpret_cast<const uint16_t*>(data), count));
    default:
      return body(std::span(reinterpret_cast<const uint8_t*>(data), count));
  }
}

/// Returns the index of the first token >= vocabulary, or the number of tokens if there is none.
size_t first_outside(TokenType type, const std::byte* data, size_t count, uint32_t vocabulary) {
  return with_tokens(type, data, count, [vocabulary](auto tokens) -> size_t {
    uint32_t most = 0;
    for (const uint32_t token : tokens) most = std::max(most, token);
    if (most < vocabulary) return tokens.size();
    const auto bad = std::find_if(tokens.begin(), tokens.end(),
                                  [vocabulary](uint32_t token) { return token >= vocabulary; });
    return static_cast<size_t>(bad - tokens.begin());
  });
}

}  // namespace

TokenFile::TokenFile(const std::string& path, TokenType type) : path_(path), file_(path, "data") {
  interpret(type);
}

void TokenFile::interpret(TokenType wanted) {
  const TokenType found =
      wanted == TokenType::Bytes ? TokenType::Auto : announced_type(file_.bytes());
  const bool is_token_file = wanted != TokenType::Auto || path_.ends_with(".bin");
  if (found != TokenType::Auto && is_token_file) {
    if (wanted != TokenType::Auto && wanted != found) {
      throw ConfigError("data '" + path_ + "' says in its header that its tokens are " +
                        std::string(name_of(found)) + ", not " + std::string(name_of(wanted)));
    }
    return interpret_header(found);
  }
  if (wanted == TokenType::Auto && is_token_file) {
    throw ConfigError("data '" + path_ + "' is a .bin without a known header" + described(look()) +
                      ": give the type of its tokens with --token-type u16, u32 or bytes");
  }
  type_ = wanted == TokenType::Auto ? TokenType::Bytes : wanted;
  const size_t bytes = file_.bytes().size();
  num_tokens_ = bytes / token_bytes(type_);
  if (bytes % token_bytes(type_) != 0) {
    throw FormatError(path_, num_tokens_ * token_bytes(type_),
                      "the file ends within a token of type " + std::string(name_of(type_)));
  }
  check_width();
  check_plain();
}

/// A header of another format would be read as tokens.
void TokenFile::check_plain() const {
  const Look look = type_ == TokenType::Bytes ? Look{} : this->look();
  if (!look.is_certain) return;
  throw ConfigError("--token-type " + std::string(name_of(type_)) + ": data '" + path_ + "' is " +
                    std::string(look.kind) + ", not plain tokens: " + std::string(look.advice));
}

/// Ids of 4 bytes that are read as u16, or of 8 bytes as u32, would be valid tokens: every second
/// one is 0.
void TokenFile::check_width() const {
  const size_t count = std::min(num_tokens_, kLookedAtBytes / token_bytes(type_));
  const bool wider =
      type_ != TokenType::Bytes &&
      with_tokens(type_, token_at(0), count, [](auto tokens) { return are_halves(tokens); });
  release_pages(0, count);
  if (!wider) return;
  throw ConfigError("--token-type " + std::string(name_of(type_)) + ": in data '" + path_ +
                    "' every second token is 0, so its tokens have " +
                    std::to_string(2 * token_bytes(type_)) + " bytes: " +
                    (type_ == TokenType::U16
                         ? "give --token-type u32"
                         : "write them as u32 (numpy: astype('uint32').tofile(FILE))"));
}

void TokenFile::interpret_header(TokenType found) {
  const std::span<const std::byte> bytes = file_.bytes();
  type_ = found;
  header_bytes_ = kHeaderBytes;
  if (bytes.size() < kHeaderBytes) {
    throw FormatError(path_, bytes.size(), "the file ends within its header of 1024 bytes");
  }
  if (!known_version(found, word(bytes, 1))) {
    throw FormatError(path_, 4, "unknown version " + std::to_string(word(bytes, 1)));
  }
  num_tokens_ = word(bytes, 2);
  const size_t expected = kHeaderBytes + num_tokens_ * token_bytes(found);
  if (bytes.size() != expected) {
    throw FormatError(path_, std::min(bytes.size(), expected),
                      "the header promises " + std::to_string(num_tokens_) + " tokens of type " +
                          std::string(name_of(found)) + ", that is a file of " +
                          std::to_string(expected) + " bytes, but it has " +
                          std::to_string(bytes.size()));
  }
}

const std::byte* TokenFile::token_at(size_t index) const {
  return file_.bytes().data() + header_bytes_ + index * token_bytes(type_);
}

Look TokenFile::look() const {
  const auto bytes = file_.bytes();
  const size_t count = std::min(bytes.size(), kLookedAtBytes);
  const Look look = look_at(bytes.first(count));
  file_.release(0, count);
  return look;
}

void TokenFile::read(size_t first, std::span<int32_t> out) const {
  EBB_CHECK(first <= num_tokens_ && out.size() <= num_tokens_ - first, "read past the tokens");
  if (out.empty()) return;
  file_.check_size();
  with_tokens(type_, token_at(first), out.size(), [out](auto tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) out[i] = static_cast<int32_t>(tokens[i]);
  });
  release_pages(first, out.size());
}

void TokenFile::check_vocabulary(uint64_t vocabulary) const {
  const uint64_t num_values = uint64_t{1} << (8 * token_bytes(type_));
  const uint64_t allowed = std::min(vocabulary, kMostVocabulary);
  if (allowed >= num_values) return;
  for (size_t first = 0; first < num_tokens_; first += kScanTokens) {
    const size_t count = std::min(kScanTokens, num_tokens_ - first);
    const size_t at = first_outside(type_, token_at(first), count, static_cast<uint32_t>(allowed));
    if (at < count) {
      uint32_t token = 0;  // little-endian
      std::memcpy(&token, token_at(first + at), token_bytes(type_));
      throw FormatError(path_, header_bytes_ + (first + at) * token_bytes(type_),
                        "token " + token_text(token) + " is outside the model's vocabulary of " +
                            std::to_string(vocabulary) +
                            (token >= kMostVocabulary ? ": token ids are less than 2^31" : ""));
    }
    release_pages(first, count);
  }
}

void TokenFile::release_pages(size_t first, size_t count) const {
  file_.release(header_bytes_ + first * token_bytes(type_), count * token_bytes(type_));
}

}  // namespace ebb

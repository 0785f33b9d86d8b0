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

/// Calls body with these bytes as a span of the integer type of tokens.
template <class Body>
auto with_tokens(TokenType type, std::span<const std::byte> bytes, const Body& body) {
  const size_t count = bytes.size() / token_bytes(type);
  switch (type) {
    case TokenType::U32:
      return body(std::span(reinterpret_cast<const uint32_t*>(bytes.data()), count));
    case TokenType::U16:
      return body(std::span(reinterpret_cast<const uint16_t*>(bytes.data()), count));
    default:
      return body(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), count));
  }
}

}  // namespace

TokenFile::TokenFile(const std::string& path, TokenType type) : file_(path, "data") {
  interpret(type);
}

std::vector<std::byte> TokenFile::beginning(size_t most_bytes) const {
  std::vector<std::byte> bytes(std::min<uint64_t>(file_.size(), most_bytes));
  file_.read(0, bytes);
  return bytes;
}

void TokenFile::interpret(TokenType wanted) {
  const std::vector<std::byte> header = beginning(kHeaderBytes);
  const TokenType found = wanted == TokenType::Bytes ? TokenType::Auto : announced_type(header);
  const bool is_token_file = wanted != TokenType::Auto || path().ends_with(".bin");
  if (found != TokenType::Auto && is_token_file) {
    if (wanted != TokenType::Auto && wanted != found) {
      throw ConfigError("data '" + path() + "' says in its header that its tokens are " +
                        std::string(name_of(found)) + ", not " + std::string(name_of(wanted)));
    }
    return interpret_header(found, header);
  }
  if (wanted == TokenType::Auto && is_token_file) {
    throw ConfigError("data '" + path() + "' is a .bin without a known header" + described(look()) +
                      ": give the type of its tokens with --token-type u16, u32 or bytes");
  }
  type_ = wanted == TokenType::Auto ? TokenType::Bytes : wanted;
  const uint64_t bytes = file_.size();
  num_tokens_ = bytes / token_bytes(type_);
  if (bytes % token_bytes(type_) != 0) {
    throw FormatError(path(), num_tokens_ * token_bytes(type_),
                      "the file ends within a token of type " + std::string(name_of(type_)));
  }
  check_width();
  check_plain();
}

/// A header of another format would be read as tokens.
void TokenFile::check_plain() const {
  const Look look = type_ == TokenType::Bytes ? Look{} : this->look();
  if (!look.is_certain) return;
  throw ConfigError("--token-type " + std::string(name_of(type_)) + ": data '" + path() + "' is " +
                    std::string(look.kind) + ", not plain tokens: " + std::string(look.advice));
}

/// Ids of 4 bytes that are read as u16, or of 8 bytes as u32, would be valid tokens: every second
/// one is 0.
void TokenFile::check_width() const {
  std::vector<std::byte> bytes = beginning(kLookedAtBytes);
  const bool wider = type_ != TokenType::Bytes &&
                     with_tokens(type_, bytes, [](auto tokens) { return are_halves(tokens); });
  if (!wider) return;
  throw ConfigError("--token-type " + std::string(name_of(type_)) + ": in data '" + path() +
                    "' every second token is 0, so its tokens have " +
                    std::to_string(2 * token_bytes(type_)) + " bytes: " +
                    (type_ == TokenType::U16
                         ? "give --token-type u32"
                         : "write them as u32 (numpy: astype('uint32').tofile(FILE))"));
}

void TokenFile::interpret_header(TokenType found, std::span<const std::byte> header) {
  type_ = found;
  header_bytes_ = kHeaderBytes;
  if (header.size() < kHeaderBytes) {
    throw FormatError(path(), header.size(), "the file ends within its header of 1024 bytes");
  }
  if (!known_version(found, word(header, 1))) {
    throw FormatError(path(), 4, "unknown version " + std::to_string(word(header, 1)));
  }
  num_tokens_ = word(header, 2);
  const size_t expected = kHeaderBytes + num_tokens_ * token_bytes(found);
  if (file_.size() != expected) {
    throw FormatError(path(), std::min<uint64_t>(file_.size(), expected),
                      "the header promises " + std::to_string(num_tokens_) + " tokens of type " +
                          std::string(name_of(found)) + ", that is a file of " +
                          std::to_string(expected) + " bytes, but it has " +
                          std::to_string(file_.size()));
  }
}

Look TokenFile::look() const { return look_at(beginning(kLookedAtBytes)); }

void TokenFile::read(size_t first, std::span<int32_t> out) const {
  EBB_CHECK(first <= num_tokens_ && out.size() <= num_tokens_ - first, "read past the tokens");
  std::vector<std::byte> bytes(out.size() * token_bytes(type_));
  read_bytes(first, bytes);
  check(first, bytes);
  with_tokens(type_, bytes, [out](auto tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) out[i] = static_cast<int32_t>(tokens[i]);
  });
}

void TokenFile::read_bytes(size_t first, std::span<std::byte> bytes) const {
  file_.read(header_bytes_ + first * token_bytes(type_), bytes);
}

void TokenFile::limit_to(uint64_t vocabulary) {
  vocabulary_ = vocabulary;
  if (!has_limit()) return;
  std::vector<std::byte> bytes(std::min(kScanTokens, num_tokens_) * token_bytes(type_));
  for (size_t first = 0; first < num_tokens_; first += kScanTokens) {
    bytes.resize(std::min(kScanTokens, num_tokens_ - first) * token_bytes(type_));
    read_bytes(first, bytes);
    check(first, bytes);
  }
}

/// False if every value of the type is in the vocabulary.
bool TokenFile::has_limit() const {
  return std::min(vocabulary_, kMostVocabulary) < uint64_t{1} << (8 * token_bytes(type_));
}

void TokenFile::check(size_t first, std::span<const std::byte> bytes) const {
  if (!has_limit()) return;
  const uint64_t allowed = std::min(vocabulary_, kMostVocabulary);
  with_tokens(type_, bytes, [&](auto tokens) {
    uint32_t most = 0;
    for (const uint32_t token : tokens) most = std::max(most, token);
    if (most < allowed) return;
    const auto bad = std::ranges::find_if(tokens, [=](uint64_t token) { return token >= allowed; });
    const size_t at = first + static_cast<size_t>(bad - tokens.begin());
    throw FormatError(path(), header_bytes_ + at * token_bytes(type_),
                      "token " + token_text(*bad) + " is outside the model's vocabulary of " +
                          std::to_string(vocabulary_) +
                          (*bad >= kMostVocabulary ? ": token ids are less than 2^31" : ""));
  });
}

}  // namespace ebb

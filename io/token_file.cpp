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
constexpr size_t kScanBytes = size_t{4} << 20;
// Fewer could have the form of wider ids by chance.
constexpr uint64_t kLeastLower = 8;

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
  if (look.is_wide) return " (its values have 16 bits, as u16 or UTF-16 text have)";
  return look.kind.empty() ? ""
                           : " (" + std::string(look.kind) + ": " + std::string(look.advice) + ")";
}

/// "4294967295 (-1 as int32)"
std::string token_text(uint32_t token) {
  const auto as_signed = static_cast<int32_t>(token);
  return std::to_string(token) +
         (as_signed < 0 ? " (" + std::to_string(as_signed) + " as int32)" : "");
}

/// Whether the tokens are halves of ids that are twice as wide: nearly all upper halves are at
/// most `most_upper`, and many lower halves are more. Ids of 32 bits have upper halves of 0, and of
/// 1 from 65,536.
template <class Tokens>
bool are_halves(const Tokens& tokens, uint64_t most_upper) {
  uint64_t num_lower = 0, num_upper = 0;  // greater than most_upper
  for (size_t i = 0; i < tokens.size(); ++i) {
    (i % 2 == 0 ? num_lower : num_upper) += tokens[i] > most_upper;
  }
  return num_lower >= kLeastLower && num_upper * 100 <= num_lower;
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
                      ": give the type of its tokens with `token_type` u16, u32 or bytes");
  }
  type_ = wanted == TokenType::Auto ? TokenType::Bytes : wanted;
  const uint64_t bytes = file_.size();
  num_tokens_ = bytes / token_bytes(type_);
  if (bytes % token_bytes(type_) != 0) {
    throw FormatError(path(), num_tokens_ * token_bytes(type_),
                      "the file ends within a token of type " + std::string(name_of(type_)));
  }
  check_plain();
}

/// Text, or the header of another format, would be read as tokens.
void TokenFile::check_plain() const {
  if (type_ == TokenType::Bytes) return;
  const std::vector<std::byte> bytes = beginning(kLookedAtBytes);
  const Look look = look_at(bytes);
  if (!look.is_certain && !is_plainly_text(bytes)) return;
  const bool is_text = !look.is_certain;
  throw ConfigError("`token_type` " + std::string(name_of(type_)) + ": data '" + path() + "' is " +
                    (is_text ? "text" : std::string(look.kind)) + ", not plain tokens: " +
                    (is_text
                         ? "leave out `token_type` to read it as text, or make tokens of it with "
                           "tools/tokenize.py"
                         : std::string(look.advice)));
}

/// Ids of 4 bytes that are read as u16, or of 8 bytes as u32, could be valid tokens. A header says
/// the type.
void TokenFile::check_width() const {
  if (type_ == TokenType::Bytes || header_bytes_ > 0) return;
  const std::vector<std::byte> bytes = beginning(kLookedAtBytes);
  const uint64_t greatest = num_allowed() - 1;
  const uint64_t most_upper = greatest >> (8 * token_bytes(type_));
  const auto halves = [=](auto tokens) { return are_halves(tokens, most_upper); };
  if (!with_tokens(type_, bytes, halves)) return;
  throw ConfigError("`token_type` " + std::string(name_of(type_)) + ": in data '" + path() +
                    "' every second token is " +
                    (most_upper == 0 ? "0" : "at most " + std::to_string(most_upper)) +
                    ", so its tokens have " + std::to_string(2 * token_bytes(type_)) + " bytes: " +
                    (type_ == TokenType::U16
                         ? "give `token_type` u32"
                         : "write them as u32 (numpy: astype('uint32').tofile(FILE))"));
}

TextScan TokenFile::scan_text() const {
  TextScan scan;
  std::vector<std::byte> bytes(kScanBytes);
  for (uint64_t first = kLookedAtBytes; first < file_.size(); first += kScanBytes) {
    bytes.resize(std::min<uint64_t>(kScanBytes, file_.size() - first));
    file_.read(first, bytes);
    for (size_t i = 0; i < bytes.size(); i += kLookedAtBytes) {
      const size_t size = std::min(kLookedAtBytes, bytes.size() - i);
      const size_t flaws = num_flaws(std::span(bytes).subspan(i, size));
      scan.num_flaws += flaws;
      if (flaws * 10 <= kLookedAtBytes) continue;
      scan.no_text_at = first + i;
      return scan;
    }
  }
  return scan;
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
  check_width();
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
  return num_allowed() < uint64_t{1} << (8 * token_bytes(type_));
}

void TokenFile::check(size_t first, std::span<const std::byte> bytes) const {
  if (!has_limit()) return;
  const uint64_t allowed = num_allowed();
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

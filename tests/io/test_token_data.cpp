#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "device/errors.h"
#include "io/token_data.h"
#include "tests/io/token_files.h"

namespace ebb::test {
namespace {

namespace fs = std::filesystem;

class TokenDataTest : public TokenFiles {};

TEST_F(TokenDataTest, TextIsBytes) {
  const std::string file = write("a.txt", "Az \xc3\xa9");
  EXPECT_EQ(all_of(TokenData({file})), (Tokens{65, 122, 32, 0xc3, 0xa9}));
  const TokenData data({write("b.txt", std::string("Az\0\xff", 4))}, TokenType::Bytes);
  EXPECT_EQ(all_of(data), (Tokens{65, 122, 0, 255}));
  EXPECT_EQ(data.type(), TokenType::Bytes);
}

TEST_F(TokenDataTest, FilesAreConcatenatedInTheOrderGiven) {
  const std::string a = write("a", "12"), b = write("b", "345");
  EXPECT_EQ(all_of(TokenData({b, a})), (Tokens{'3', '4', '5', '1', '2'}));
}

TEST_F(TokenDataTest, RecordsOfTokenFilesAreNoData) {
  write_llmc<uint16_t>("d/a.bin", 20240520, 1, 2, {5, 6});
  const std::string record = write("d/a.bin.json", "{}");
  const TokenData data({path("d")});
  EXPECT_EQ(all_of(data), (Tokens{5, 6}));
  EXPECT_TRUE(data.notes().empty());
  EXPECT_SAYS(error_of<ConfigError>([&] { TokenData({record}); }), "record of a token file");
}

/// The header of an array would be learned as tokens.
TEST_F(TokenDataTest, OtherFormatsAreNoPlainTokens) {
  const std::string array =
      write("a.npy", std::string("\x93NUMPY\x01\0v\0{'descr': '<u2'}\n\x05\0", 28));
  for (const TokenType type : {TokenType::U16, TokenType::U32}) {
    const auto refused = error_of<ConfigError>([&] { TokenData({array}, type); });
    EXPECT_SAYS(refused, "is a NumPy array, not plain tokens");
  }
  const std::string archive = write("a.bin", "PK\x03\x04\x14");
  EXPECT_SAYS(error_of<ConfigError>([&] { TokenData({archive}); }), "known header (a zip archive");
  // The first token may have the bytes with which gzip begins.
  EXPECT_EQ(
      TokenData({write_tokens<uint16_t>("b.bin", {0x8b1f, 7, 3})}, TokenType::U16).num_tokens(),
      3u);
}

std::string utf16_of(const std::string& ascii, bool is_big) {
  std::string text;
  for (const char c : ascii) text += is_big ? std::string{'\0', c} : std::string{c, '\0'};
  return text;
}

TEST_F(TokenDataTest, TextAndKnownFormatsAreNoPlainTokens) {
  const std::string line = "{\"text\": \"a line of a file of texts\"}\n";
  const std::string rest(100, '\x91');
  const std::pair<std::string, const char*> files[] = {
      {line, "is text, not plain tokens"},
      {line + "caf\xc3\xa9\n", "is text, not plain tokens"},
      {"\x1f\x8b\x08" + rest + "x", "gunzip"},
      {"\xff\xd8\xff\xe0" + rest, "JPEG"},
      {"\x80\x04\x95" + rest + "x", "pickle"},
      {"\x80\x02}q" + rest, "pickle"},
      {std::string("\x40\0\0\0\0\0\0\0{\"a\":", 13) + rest + "abc", "safetensors"},
      {"\xff\xfe" + utf16_of(line, false), "UTF-16"},
      {"\xfe\xff" + utf16_of(line, true), "UTF-16"}};
  for (const auto& [content, fragment] : files) {
    std::string padded = content;
    while (padded.size() % 4 != 0) padded += "\n";
    const std::string file = write("file", padded);
    for (const TokenType type : {TokenType::U16, TokenType::U32}) {
      const auto refused = error_of<ConfigError>([&] { TokenData({file}, type); });
      EXPECT_SAYS(refused, fragment);
      EXPECT_SAYS(refused, file);
    }
    EXPECT_EQ(TokenData({file}, TokenType::Bytes).num_tokens(), padded.size());
  }
}

/// Random tokens of several vocabularies and lengths, and files that begin with the bytes of a
/// byte order mark.
TEST_F(TokenDataTest, TokensAreAcceptedAsTokens) {
  std::mt19937 random(1);
  for (int i = 0; i < 600; ++i) {
    const uint32_t vocabulary = std::array<uint32_t, 5>{256, 5000, 50'257, 65'536, 128'256}[i % 5];
    const size_t count = std::array<size_t, 4>{3, 20, 100, 3000}[i % 4];
    std::vector<uint16_t> u16;
    std::vector<uint32_t> u32;
    for (size_t t = 0; t < count; ++t) {
      u32.push_back(random() % vocabulary);
      u16.push_back(static_cast<uint16_t>(u32.back()));
    }
    if (i % 60 == 3) u16.front() = 0xfeff;
    TokenData words({write_tokens("u32", u32)}, TokenType::U32);
    words.limit_to(vocabulary);
    EXPECT_EQ(words.num_tokens(), count);
    TokenData shorts({write_tokens("u16", u16)}, TokenType::U16);
    shorts.limit_to(std::max(vocabulary, uint32_t{1} << 16));
    EXPECT_EQ(shorts.num_tokens(), count);
  }
}

/// Ids from 65,536 have upper halves that are not 0.
TEST_F(TokenDataTest, WiderTokensThanTheGivenTypeAreRefused) {
  const auto limited = [](const std::string& file, TokenType type, uint64_t vocabulary) {
    TokenData data({file}, type);
    data.limit_to(vocabulary);
    return data.num_tokens();
  };
  std::mt19937 random(1);
  for (const uint32_t vocabulary : {256u, 50'257u, 65'536u, 128'256u, 262'144u}) {
    std::vector<uint32_t> u32(2000);
    std::vector<uint64_t> u64(2000);
    for (size_t i = 0; i < u32.size(); ++i) u64[i] = u32[i] = random() % vocabulary;
    u64[0] = u32[0] = vocabulary - 1;
    const std::string words = write_tokens("words", u32), longs = write_tokens("longs", u64);
    EXPECT_EQ(limited(words, TokenType::U32, vocabulary), 2000u);
    const auto narrow = error_of<ConfigError>([&] { limited(words, TokenType::U16, vocabulary); });
    EXPECT_SAYS(narrow, "every second token is ");
    EXPECT_SAYS(narrow, "give `token_type` u32");
    EXPECT_SAYS(error_of<ConfigError>([&] { limited(longs, TokenType::U32, vocabulary); }),
                "astype('uint32')");
    // Padding has the id 0 in both halves.
    std::fill(u32.begin() + 100, u32.end(), 0u);
    EXPECT_THROW(limited(write_tokens("padded", u32), TokenType::U16, vocabulary), ConfigError);
  }
  const std::string zeros = write_tokens("zeros", std::vector<uint16_t>(40));
  EXPECT_EQ(limited(zeros, TokenType::U16, 50'257), 40u);
  std::vector<uint16_t> padded(2000);
  for (size_t i = 0; i < 100; ++i) padded[i] = static_cast<uint16_t>(random());
  EXPECT_EQ(limited(write_tokens("padded", padded), TokenType::U16, 128'256), 2000u);
}

TEST_F(TokenDataTest, ABinFileOfSmallIdsMayBeOfU16) {
  const std::string file = write("a.bin", utf16_of("tokens below 256", false));
  const auto refused = error_of<ConfigError>([&] { TokenData({file}); });
  EXPECT_SAYS(refused, "its values have 16 bits, as u16 or UTF-16 text have");
  EXPECT_SAYS(refused, "`token_type` u16, u32 or bytes");
}

TEST_F(TokenDataTest, ReadsAcrossFileBorders) {
  std::vector<std::string> paths;
  std::string text;
  for (int i = 0; i < 7; ++i) {
    const std::string part(static_cast<size_t>(i * i + 1), static_cast<char>('a' + i));
    paths.push_back(write(std::to_string(i), part));
    text += part;
  }
  const TokenData data(paths);
  ASSERT_EQ(data.num_tokens(), text.size());
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t count = 0; first + count <= text.size(); ++count) {
      Tokens out(count + 1, -7);
      data.read(first, std::span(out).first(count));
      EXPECT_EQ(out.back(), -7);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], text[first + i]);
    }
  }
}

TEST_F(TokenDataTest, ReadingPastTheEndIsALogicError) {
  const TokenData data({write("a", "abc")});
  Tokens out(2);
  EXPECT_THROW(data.read(2, out), LogicError);
  EXPECT_THROW(data.read(4, std::span(out).first(0)), LogicError);
}

TEST_F(TokenDataTest, PagesReadAgainGiveTheSameTokens) {
  std::vector<uint16_t> tokens(100'000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i * 31);
  const TokenData data({write_llmc("a.bin", 20240520, 1, 100'000, tokens)});
  Tokens out(1000);
  for (const size_t first : {0, 99'000, 511, 512, 50'000, 0}) {
    data.read(first, out);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], tokens[first + i]);
  }
}

/// Reading a file that shrank must not end with SIGBUS. A file that was replaced keeps its content.
TEST_F(TokenDataTest, AFileThatShrinksIsAnError) {
  const std::string file = write("a.txt", std::string(100000, 'x'));
  const TokenData data({file});
  Tokens tokens(10);
  data.read(90000, tokens);
  fs::rename(write("b.txt", "y"), file);
  data.read(90000, tokens);
  EXPECT_EQ(tokens, Tokens(10, 'x'));

  const std::string other = write("c.txt", std::string(100000, 'x'));
  const TokenData shrinking({other});
  fs::resize_file(other, 50000);
  const auto error = error_of<FormatError>([&] { shrinking.read(90000, tokens); });
  EXPECT_EQ(error.offset, 50000u);
  EXPECT_SAYS(error, "the file shrank from 100000 to 50000 bytes");
}

TEST_F(TokenDataTest, LlmcFilesContainTheirType) {
  const TokenData u16({write_llmc<uint16_t>("a.bin", 20240520, 1, 3, {1, 50256, 65535})});
  EXPECT_EQ(all_of(u16), (Tokens{1, 50256, 65535}));
  EXPECT_EQ(u16.type(), TokenType::U16);
  for (const uint32_t version : {1, 7}) {
    const TokenData u32({write_llmc<uint32_t>("b.bin", 20240801, version, 2, {7, 128255})});
    EXPECT_EQ(all_of(u32), (Tokens{7, 128255}));
    EXPECT_EQ(u32.type(), TokenType::U32);
  }
}

TEST_F(TokenDataTest, HeadersAreAlsoSkippedIfATypeIsGiven) {
  const std::string file = write_llmc<uint16_t>("a.bin", 20240520, 1, 2, {5, 6});
  EXPECT_EQ(all_of(TokenData({file}, TokenType::U16)), (Tokens{5, 6}));
  EXPECT_EQ(TokenData({file}, TokenType::Bytes).num_tokens(), 1028u);
  EXPECT_SAYS(error_of<ConfigError>([&] { TokenData({file}, TokenType::U32); }), "not u32");
}

TEST_F(TokenDataTest, FilesWithoutHeaderNeedAType) {
  const std::string file = write_tokens<uint16_t>("a.bin", {1, 2, 3, 4});
  EXPECT_SAYS(error_of<ConfigError>([&] { TokenData({file}); }), "`token_type`");
  EXPECT_EQ(all_of(TokenData({file}, TokenType::U16)), (Tokens{1, 2, 3, 4}));
  EXPECT_EQ(all_of(TokenData({file}, TokenType::U32)), (Tokens{0x20001, 0x40003}));
}

TEST_F(TokenDataTest, FilesThatContradictTheirHeaderAreRejected) {
  const auto offset_of = [](const std::string& file, const char* fragment) {
    const auto error = error_of<FormatError>([&] { TokenData({file}); });
    EXPECT_EQ(error.path, file);
    EXPECT_SAYS(error, file);
    EXPECT_SAYS(error, fragment);
    return error.offset;
  };
  EXPECT_EQ(offset_of(write_llmc<uint16_t>("short.bin", 20240520, 1, 9, {1, 2, 3}), "1042"), 1030u);
  EXPECT_EQ(offset_of(write_llmc<uint16_t>("long.bin", 20240520, 1, 2, {1, 2, 3}), "1028"), 1028u);
  EXPECT_EQ(offset_of(write_llmc<uint16_t>("v.bin", 20240520, 7, 1, {1}), "version 7"), 4u);
  EXPECT_EQ(offset_of(write_llmc<uint32_t>("w.bin", 20240801, 2, 1, {1}), "version 2"), 4u);
  EXPECT_EQ(offset_of(write_tokens<uint32_t>("cut.bin", {20240520, 1}), "1024"), 8u);
}

TEST_F(TokenDataTest, AFileThatEndsWithinATokenIsRejected) {
  const std::string file = write("a.bin", "12345");
  EXPECT_EQ(error_of<FormatError>([&] { TokenData({file}, TokenType::U16); }).offset, 4u);
  EXPECT_EQ(error_of<FormatError>([&] { TokenData({file}, TokenType::U32); }).offset, 4u);
}

TEST_F(TokenDataTest, MixedTypesAreRejected) {
  write("d/README", "shards");
  write_llmc<uint16_t>("d/a.bin", 20240520, 1, 1, {1});
  EXPECT_SAYS(error_of<ConfigError>([&] { TokenData({path("d")}); }), "mixes");
}

TEST_F(TokenDataTest, SamplesNeedOneTokenMoreThanTheyHavePositions) {
  const TokenData data({write("a", std::string(33, 'x'))});
  EXPECT_EQ(data.num_samples(8), 4u);
  EXPECT_EQ(data.num_samples(32), 1u);
  EXPECT_EQ(data.num_samples(33), 0u);
  EXPECT_EQ(TokenData({write("b", std::string(32, 'x'))}).num_samples(8), 3u);
}

TEST_F(TokenDataTest, TokensOutsideTheVocabularyAreRejected) {
  std::vector<uint16_t> tokens(5'000'000, 99);
  tokens[4'999'998] = 100;
  const std::string file = write_llmc("a.bin", 20240520, 1, 5'000'000, tokens);
  TokenData data({file});
  data.limit_to(101);
  const auto error = error_of<FormatError>([&] { data.limit_to(100); });
  EXPECT_EQ(error.path, file);
  EXPECT_EQ(error.offset, 1024u + 2 * 4'999'998);
  EXPECT_SAYS(error, "token 100 is outside the model's vocabulary of 100");
}

TEST_F(TokenDataTest, BytesFitAVocabularyOf256) {
  TokenData data({write("a", "ok\xff")}, TokenType::Bytes);
  data.limit_to(256);
  EXPECT_EQ(error_of<FormatError>([&] { data.limit_to(255); }).offset, 2u);
  TokenData big({write_tokens<uint32_t>("b.bin", {1, 0x80000000})}, TokenType::U32);
  EXPECT_EQ(error_of<FormatError>([&] { big.limit_to(0x7fffffff); }).offset, 4u);
}

/// One changed token of a small file changes the fingerprint; the place of the data does not.
TEST_F(TokenDataTest, TheFingerprintIsThatOfTheTokens) {
  std::vector<uint16_t> tokens(60'000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i * 31);
  const auto of = [&](const std::string& name) {
    return TokenData({write_tokens(name, tokens)}, TokenType::U16).fingerprint();
  };
  const uint64_t before = of("a");
  EXPECT_EQ(of("b"), before);
  for (const size_t i : {0, 1023, 1024, 30'000, 59'998, 59'999}) {
    ++tokens[i];
    EXPECT_NE(of("c"), before) << i;
    --tokens[i];
  }
  tokens.pop_back();
  EXPECT_NE(of("d"), before);
  const std::string one = write("1", "a"), two = write("2", "bc"), three = write("3", "ab");
  EXPECT_NE(TokenData({one, two}).fingerprint(), TokenData({two, one}).fingerprint());
  EXPECT_NE(TokenData({one, two}).fingerprint(), TokenData({three, write("4", "c")}).fingerprint());
}

/// Data that was made anew differs in nearly every block, also if it is large.
TEST_F(TokenDataTest, TheFingerprintSamplesLargeData) {
  std::string text(8'000'000, 'x');
  const uint64_t before = TokenData({write("a", text)}).fingerprint();
  text.replace(3'000'000, 200'000, std::string(200'000, 'y'));
  EXPECT_NE(TokenData({write("b", text)}).fingerprint(), before);
}

/// Another program may write to the file while it is used.
TEST_F(TokenDataTest, TokensThatBecomeInvalidAreRejectedWhenTheyAreRead) {
  const std::string file = write_llmc<uint16_t>("a.bin", 20240520, 1, 4, {1, 2, 3, 4});
  TokenData data({file});
  data.limit_to(10);
  write_llmc<uint16_t>("a.bin", 20240520, 1, 4, {1, 2, 3, 11});
  std::vector<int32_t> tokens(3);
  data.read(0, tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{1, 2, 3}));
  const auto error = error_of<FormatError>([&] { data.read(1, tokens); });
  EXPECT_EQ(error.offset, 1024u + 6);
  EXPECT_SAYS(error, "token 11 is outside the model's vocabulary of 10");
}

/// Tokens are read as int32, so no vocabulary allows more than 2^31 of them.
TEST_F(TokenDataTest, TokensThatDoNotFitInt32AreRejected) {
  const std::string file = write_tokens<uint32_t>("a.bin", {7, 0x7fffffff, 0x80000000, 0xffffffff});
  TokenData data({file}, TokenType::U32);
  const auto error = error_of<FormatError>([&] { data.limit_to(uint64_t{1} << 33); });
  EXPECT_EQ(error.offset, 8u);
  EXPECT_SAYS(error, "token 2147483648");
  EXPECT_SAYS(error, "less than 2^31");
  const std::string minus_one = write_tokens<int32_t>("b.bin", {7, -1});
  TokenData other({minus_one}, TokenType::U32);
  EXPECT_SAYS(error_of<FormatError>([&] { other.limit_to(1000); }), "(-1 as int32)");
}

}  // namespace
}  // namespace ebb::test

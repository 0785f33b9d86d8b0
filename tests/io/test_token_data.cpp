#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/errors.h"
#include "io/plain_text.h"
#include "io/token_data.h"
#include "tests/error_of.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<int32_t>;
using test::error_of;

class TokenDataTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ebb-test-io-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string write(const std::string& name, const std::string& content) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return path(name);
  }

  template <class T>
  std::string write_tokens(const std::string& name, const std::vector<T>& tokens) const {
    return write(name, bytes_of(tokens));
  }

  template <class T>
  std::string write_llmc(const std::string& name, uint32_t magic, uint32_t version, uint32_t count,
                         const std::vector<T>& tokens) const {
    std::vector<uint32_t> header(256);
    header[0] = magic, header[1] = version, header[2] = count;
    return write(name, bytes_of(header) + bytes_of(tokens));
  }

  template <class T>
  static std::string bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }

  fs::path folder_;
};

Tokens all_of(const TokenData& data) {
  Tokens tokens(data.num_tokens());
  data.read(0, tokens);
  return tokens;
}

#define EXPECT_SAYS(error, fragment) \
  EXPECT_NE(std::strstr((error).what(), fragment), nullptr) << (error).what()

TEST_F(TokenDataTest, TextIsBytes) {
  const TokenData data({write("a.txt", std::string("Az\0\xff", 4))});
  EXPECT_EQ(all_of(data), (Tokens{65, 122, 0, 255}));
  EXPECT_EQ(data.type(), TokenType::Bytes);
}

TEST_F(TokenDataTest, FilesAreConcatenatedInTheOrderGiven) {
  const std::string a = write("a", "12"), b = write("b", "345");
  EXPECT_EQ(all_of(TokenData({b, a})), (Tokens{'3', '4', '5', '1', '2'}));
}

TEST_F(TokenDataTest, FoldersAreReadRecursivelySortedByPath) {
  write("d/z", "4");
  write("d/b/y", "3");
  write("d/b/x", "2");
  write("d/a", "1");
  write("d/empty", "");
  const TokenData data({path("d"), write("last", "5")});
  EXPECT_EQ(all_of(data), (Tokens{'1', '2', '3', '4', '5'}));
  EXPECT_EQ(data.num_files(), 5u);
}

TEST_F(TokenDataTest, FilesOfAFolderThatAreNoTextAreSkipped) {
  const std::string nul = write("d/a.png", std::string("text but for\0", 13) + "one byte");
  const std::string packed = write("d/b.gz", "\x1f\x8b\xff\xfe\xc3\x28 text");
  write("d/c.txt", "1");
  write("d/empty", "");
  const TokenData data({path("d")});
  EXPECT_EQ(all_of(data), Tokens{'1'});
  EXPECT_EQ(data.left_out().size(), 2u);
  EXPECT_EQ(data.left_out()[0], nul);
  EXPECT_EQ(data.left_out()[1], packed);
  const TokenData as_they_are({path("d")}, TokenType::Bytes);
  EXPECT_EQ(as_they_are.num_tokens(), 21u + 11 + 1);
  EXPECT_TRUE(as_they_are.left_out().empty());
  EXPECT_EQ(TokenData({nul, packed}).num_tokens(), 21u + 11)
      << "files that are named are not skipped";
  fs::remove(path("d/c.txt"));
  const auto none = error_of<ConfigError>([&] { TokenData({path("d")}); });
  EXPECT_SAYS(none, "2 files there are no text");
  EXPECT_SAYS(none, nul.c_str());
  EXPECT_SAYS(none, "--token-type bytes");
}

TEST_F(TokenDataTest, TheFirst64KiBDecideWhetherAFileIsText) {
  const std::string end_of_look(size_t{64} << 10, 'x');
  write("d/late", end_of_look + std::string(1, '\0'));
  write("d/soon", end_of_look.substr(1) + std::string(1, '\0'));
  const TokenData data({path("d")});
  EXPECT_EQ(data.num_files(), 1u);
  EXPECT_EQ(data.num_tokens(), end_of_look.size() + 1);
  EXPECT_EQ(data.left_out().size(), 1u);
}

bool is_text(std::string_view text) {
  return ebb::is_text(std::as_bytes(std::span(text.data(), text.size())));
}

TEST(PlainText, MayHaveATenthOfInvalidUtf8) {
  EXPECT_TRUE(is_text(""));
  EXPECT_TRUE(is_text("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\n"));
  EXPECT_TRUE(is_text("in Latin 1: caf\xe9"));
  EXPECT_FALSE(is_text("caf\xe9!"));
  EXPECT_TRUE(is_text("123456789\xff"));
  EXPECT_FALSE(is_text("12345678\xff"));
  EXPECT_FALSE(is_text(std::string_view("123456789\0", 10)));
}

TEST(PlainText, ACharacterCutAtTheEndIsValid) {
  for (const std::string_view cut : {"\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xf0"}) {
    EXPECT_TRUE(is_text(cut));
    EXPECT_FALSE(is_text(std::string(cut) + "a"));
  }
}

/// Overlong encodings, surrogates, values beyond U+10FFFF and lone continuation bytes (RFC 3629).
TEST(PlainText, InvalidEncodingsAreRejected) {
  for (const std::string_view bad : {"\xc0\xaf", "\xc1\x80", "\xe0\x9f\xbf", "\xed\xa0\x80",
                                     "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5", "\x80"}) {
    EXPECT_FALSE(is_text(bad));
  }
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
  EXPECT_SAYS(error_of<ConfigError>([&] { TokenData({file}); }), "--token-type");
  EXPECT_EQ(all_of(TokenData({file}, TokenType::U16)), (Tokens{1, 2, 3, 4}));
  EXPECT_EQ(all_of(TokenData({file}, TokenType::U32)), (Tokens{0x20001, 0x40003}));
}

TEST_F(TokenDataTest, FilesThatContradictTheirHeaderAreRejected) {
  const auto offset_of = [](const std::string& file, const char* fragment) {
    const auto error = error_of<FormatError>([&] { TokenData({file}); });
    EXPECT_EQ(error.path, file);
    EXPECT_SAYS(error, file.c_str());
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

TEST_F(TokenDataTest, AnUnreadableFileIsAnErrorWithPathAndReason) {
  const auto missing = error_of<IoError>([&] { TokenData({path("none")}); });
  EXPECT_EQ(missing.path, path("none"));
  EXPECT_EQ(missing.error_number, ENOENT);
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_SAYS(error_of<ConfigError>([&] { TokenData({path("fifo")}); }), "fifo");
  if (::geteuid() == 0) return;  // root may read any file
  const std::string secret = write("secret", "x");
  ASSERT_EQ(::chmod(secret.c_str(), 0), 0);
  EXPECT_EQ(error_of<IoError>([&] { TokenData({secret}); }).error_number, EACCES);
}

TEST_F(TokenDataTest, EmptyDataIsRejected) {
  const std::string file = write("empty", "");
  EXPECT_SAYS(error_of<ConfigError>([&] { TokenData({file}); }), file.c_str());
  fs::create_directory(path("d"));
  EXPECT_SAYS(error_of<ConfigError>([&] { TokenData({path("d")}); }), "empty");
  EXPECT_THROW(TokenData({}), ConfigError);
  EXPECT_THROW(TokenData({write_llmc<uint16_t>("a.bin", 20240520, 1, 0, {})}), ConfigError);
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
  const TokenData data({file});
  data.check_vocabulary(101);
  const auto error = error_of<FormatError>([&] { data.check_vocabulary(100); });
  EXPECT_EQ(error.path, file);
  EXPECT_EQ(error.offset, 1024u + 2 * 4'999'998);
  EXPECT_SAYS(error, "token 100 is outside the model's vocabulary of 100");
}

TEST_F(TokenDataTest, BytesFitAVocabularyOf256) {
  const TokenData data({write("a", "ok\xff")});
  data.check_vocabulary(256);
  EXPECT_EQ(error_of<FormatError>([&] { data.check_vocabulary(255); }).offset, 2u);
  const TokenData big({write_tokens<uint32_t>("b.bin", {1, 0x80000000})}, TokenType::U32);
  EXPECT_EQ(error_of<FormatError>([&] { big.check_vocabulary(0x7fffffff); }).offset, 4u);
}

}  // namespace
}  // namespace ebb

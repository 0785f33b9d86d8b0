#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/errors.h"
#include "io/plain_text.h"
#include "io/token_data.h"
#include "tests/io/safetensors_files.h"

namespace ebb::test {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<int32_t>;
using Lines = std::vector<std::string>;

class TokenDataTest : public FolderTest {
 protected:
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

  /// "NotText d/a.gz gzip data" for each note, with the path in the folder of the test.
  std::vector<std::string> notes(const TokenData& data) const {
    constexpr const char* kNames[] = {
        "NotText", "BrokenLink",   "SpecialFile", "Hidden", "RepeatedFolder", "LoneRecord",
        "Empty",   "RepeatedFile", "Json",        "Table",  "ByteOrderMark",  "NotUtf8"};
    std::vector<std::string> lines;
    for (const NotedFile& file : data.notes()) {
      lines.push_back(std::string(kNames[static_cast<size_t>(file.note)]) + " " +
                      fs::path(file.path).lexically_relative(folder_).string());
      if (!file.kind.empty()) lines.back() += " " + std::string(file.kind);
    }
    return lines;
  }
};

Tokens all_of(const TokenData& data) {
  Tokens tokens(data.num_tokens());
  data.read(0, tokens);
  return tokens;
}

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
  EXPECT_EQ(notes(data), (Lines{"NotText d/a.png", "NotText d/b.gz gzip data", "Empty d/empty"}));
  const TokenData as_they_are({path("d")}, TokenType::Bytes);
  EXPECT_EQ(as_they_are.num_tokens(), 21u + 11 + 1);
  EXPECT_EQ(notes(as_they_are), Lines{"Empty d/empty"});
  fs::remove(path("d/c.txt"));
  const auto none = error_of<ConfigError>([&] { TokenData({path("d")}); });
  EXPECT_SAYS(none, "and 2 more are left out");
  EXPECT_SAYS(none, nul);
  EXPECT_SAYS(none, "`token_type` bytes");
}

/// A few bytes that are no text are reported. After 64 KiB of them, the file is no text.
TEST_F(TokenDataTest, TextIsCheckedToItsEnd) {
  const std::string end_of_look(size_t{64} << 10, 'x');
  write("d/soon", end_of_look.substr(1) + std::string(1, '\0'));
  write("d/late", end_of_look + std::string(1, '\0'));
  const TokenData data({path("d")});
  EXPECT_EQ(data.num_tokens(), end_of_look.size() + 1);
  EXPECT_EQ(notes(data), (Lines{"NotUtf8 d/late", "NotText d/soon"}));
  for (const std::string& other : {std::string(100'000, '\0'), std::string(100'000, '\xff')}) {
    const std::string text(5'000'000, 'x');
    const std::string file = write("d/mixed", text + other);
    const auto refused = error_of<FormatError>([&] { TokenData({file}); });
    EXPECT_EQ(refused.offset, 5'000'000u >> 16 << 16);
    EXPECT_SAYS(refused, "begins as text");
    EXPECT_EQ(
        notes(TokenData({path("d")})),
        (Lines{"NotUtf8 d/late", "NotText d/mixed text only at its beginning", "NotText d/soon"}));
    EXPECT_EQ(TokenData({file}, TokenType::Bytes).num_tokens(), 5'100'000u);
  }
}

/// Blocks that are read together begin within characters.
TEST_F(TokenDataTest, LongTextOfManyBytesACharacterHasNoNotes) {
  for (const std::string character : {"\xc3\xa9", "\xe4\xb8\xad", "\xf0\x9f\x98\x80"}) {
    for (const std::string begin : {"", "a", "ab", "abc"}) {
      std::string text = begin;
      while (text.size() < 300'000) text += character;
      EXPECT_EQ(notes(TokenData({write("a.txt", text)})), Lines{});
      text.insert(text.begin() + 200'000, '\xff');
      EXPECT_EQ(notes(TokenData({write("a.txt", text)})), Lines{"NotUtf8 a.txt"});
    }
  }
}

/// A file that is given by its own path is refused if it is no text, and the message names its
/// kind.
TEST_F(TokenDataTest, NamedFilesThatAreNoTextAreRefused) {
  const std::pair<std::string, const char*> files[] = {
      {"\x1f\x8b\x08\x08", "gunzip"},
      {"\x28\xb5\x2f\xfd\x24", "zstd"},
      {std::string("\xfd"
                   "7zXZ\0\0",
                   7),
       "xz"},
      {"BZh91AY&SY\xd3\xff\xff", "bunzip2"},
      {"PK\x03\x04\x14", "zip archive"},
      {std::string("\x93NUMPY\x01\0v\0{'descr'", 18), "NumPy array"},
      {"PAR1\x15\x04", "Parquet"},
      {std::string("ARROW1\0\0", 8), "Arrow"},
      {std::string("\x80\x02}q\0", 5), "pickle"},
      {std::string("\x40\0\0\0\0\0\0\0{\"a\":", 13), "safetensors"},
      {"%PDF-1.4\nall of it is text\n", "PDF"},
      {std::string("\x89PNG\r\n\x1a\n\0", 9), "PNG"},
      {"\xff\xd8\xff\xe0", "JPEG"},
      {std::string("\xff\xfeh\0i\0", 6), "UTF-16"},
      {std::string("\xfe\xff\0h\0i", 6), "UTF-16"},
      {std::string("h\0e\0l\0l\0o\0", 10), "iconv -f UTF-16LE"},
      {std::string("\0h\0e\0l\0l\0o", 10), "iconv -f UTF-16BE"},
      {std::string("\xff\xfe\0\0h\0\0\0", 8), "UTF-32"},
      {std::string("\x88\xd8\x34\x01\x01\0\0\0", 8), "`token_type` u16"},
      {std::string("some\0bytes", 10), "is not text in UTF-8"},
      {"\xe9\xe8\xe0", "iconv"}};
  for (const auto& [content, fragment] : files) {
    const std::string file = write("file", content);
    const auto refused = error_of<ConfigError>([&] { TokenData({file}); });
    EXPECT_SAYS(refused, fragment);
    EXPECT_SAYS(refused, file);
    EXPECT_SAYS(refused, "`token_type` bytes");
    EXPECT_EQ(TokenData({file}, TokenType::Bytes).num_tokens(), content.size());
  }
}

/// Text may contain what other kinds of files begin with.
TEST_F(TokenDataTest, TextThatLooksLikeAnotherKindIsText) {
  for (const std::string text : {"GIF87a is a format", "GGUF files", "RIFF....WEBP", "BZh91AY&SY",
                                 "12345678{\"a\": 1}", "PAR1 and ARROW1", "7z", "PK zip"}) {
    EXPECT_EQ(TokenData({write("a.txt", text)}).num_tokens(), text.size()) << text;
  }
}

TEST_F(TokenDataTest, UnusualTextIsReadAndNoted) {
  const TokenData data({write("a.jsonl", "{\"text\": \"a\"}\n"), write("b.txt", "\xef\xbb\xbfx"),
                        write("c.txt", ""), write("d.json", "7"), write("e", " [\n {\"a\": 1}]"),
                        write("f.txt", "in Latin 1: caf\xe9 au lait"), write("g.txt", "{x} [y]"),
                        write("h.csv", "a,b\n"), write("i.tsv", "a\tb\n")});
  EXPECT_EQ(data.num_tokens(), 14u + 4 + 1 + 13 + 24 + 7 + 4 + 4);
  EXPECT_EQ(notes(data), (Lines{"Json a.jsonl", "ByteOrderMark b.txt", "Empty c.txt", "Json d.json",
                                "Json e", "NotUtf8 f.txt", "Table h.csv", "Table i.tsv"}));
}

TEST_F(TokenDataTest, AFileThatIsReadAgainIsNoted) {
  const std::string a = write("d/a.txt", "12");
  fs::create_symlink("a.txt", path("d/b.txt"));
  const TokenData data({path("d"), a});
  EXPECT_EQ(data.num_tokens(), 6u);
  EXPECT_EQ(notes(data), (Lines{"RepeatedFile d/b.txt", "RepeatedFile d/a.txt"}));
  EXPECT_EQ(data.shared_file(TokenData({path("d/b.txt")})), a);
  EXPECT_EQ(data.shared_file(TokenData({write("other", "12")})), "");
}

TEST_F(TokenDataTest, LinksToFoldersAreFollowed) {
  write("d/z.txt", "2");
  write("elsewhere/deep/a.txt", "1");
  fs::create_directory_symlink("../elsewhere", path("d/link"));
  const TokenData data({path("d")});
  EXPECT_EQ(all_of(data), (Tokens{'1', '2'}));
  EXPECT_EQ(data.file(0).path(), path("d/link/deep/a.txt"));
  EXPECT_TRUE(data.notes().empty());
}

/// Each folder is read once, and under its own path where it has one in the data.
TEST_F(TokenDataTest, CyclesOfLinksEnd) {
  write("d/a.txt", "1");
  write("d/sub/b.txt", "2");
  fs::create_directory_symlink(".", path("d/again"));
  fs::create_directory_symlink("..", path("d/sub/up"));
  fs::create_directory_symlink("sub", path("d/a-sub"));
  const TokenData data({path("d")});
  EXPECT_EQ(all_of(data), (Tokens{'1', '2'}));
  EXPECT_EQ(data.file(1).path(), path("d/sub/b.txt"));
  EXPECT_EQ(notes(data),
            (Lines{"RepeatedFolder d/a-sub", "RepeatedFolder d/again", "RepeatedFolder d/sub/up"}));
}

TEST_F(TokenDataTest, WhatAFolderCannotGiveIsNoted) {
  write("d/a.txt", "1");
  write("d/.hidden.txt", "2");
  write("d/.git/config", "3");
  fs::create_symlink("nowhere", path("d/broken"));
  fs::create_symlink("loop", path("d/loop"));
  ASSERT_EQ(::mkfifo(path("d/fifo").c_str(), 0600), 0);
  write("d/lone.bin.json", "{}");
  const TokenData data({path("d")});
  EXPECT_EQ(all_of(data), Tokens{'1'});
  EXPECT_EQ(notes(data),
            (Lines{"Hidden d/.git", "Hidden d/.hidden.txt", "BrokenLink d/broken",
                   "SpecialFile d/fifo", "LoneRecord d/lone.bin.json", "BrokenLink d/loop"}));
  EXPECT_EQ(TokenData({path("d/.hidden.txt")}).num_tokens(), 1u) << "its own path is given";
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
  write("d/a.txt", "x");
  fs::rename(secret, path("d/secret"));
  EXPECT_EQ(error_of<IoError>([&] { TokenData({path("d")}); }).path, path("d/secret"));
  fs::remove(path("d/secret"));
  write("d/sub/b.txt", "x");
  ASSERT_EQ(::chmod(path("d/sub").c_str(), 0), 0);
  const auto closed = error_of<IoError>([&] { TokenData({path("d")}); });
  ASSERT_EQ(::chmod(path("d/sub").c_str(), 0700), 0);
  EXPECT_EQ(closed.path, path("d/sub"));
}

TEST_F(TokenDataTest, EmptyDataIsRejected) {
  const std::string file = write("empty", "");
  EXPECT_SAYS(error_of<ConfigError>([&] { TokenData({file}); }), file.c_str());
  fs::create_directory(path("d"));
  EXPECT_SAYS(error_of<ConfigError>([&] { TokenData({path("d")}); }), "empty");
  EXPECT_THROW(TokenData({}), ConfigError);
  EXPECT_THROW(TokenData({write_llmc<uint16_t>("a.bin", 20240520, 1, 0, {})}), ConfigError);
}

TEST_F(TokenDataTest, EmptyDataSaysWhatIsLeftOut) {
  write("d/.hidden.txt", "x");
  const auto hidden = error_of<ConfigError>([&] { TokenData({path("d")}); });
  EXPECT_SAYS(hidden, ("'" + path("d/.hidden.txt") + "' is hidden"));
  fs::create_symlink("nowhere", path("d/broken"));
  EXPECT_SAYS(error_of<ConfigError>([&] { TokenData({path("d")}); }), "and 1 more are left out");
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

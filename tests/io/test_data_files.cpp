// Which files are data: those of folders, text and what is no text.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/errors.h"
#include "io/plain_text.h"
#include "io/token_data.h"
#include "tests/io/token_files.h"

namespace ebb::test {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

class DataFiles : public TokenFiles {
 protected:
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

TEST_F(DataFiles, FoldersAreReadRecursivelySortedByPath) {
  write("d/z", "4");
  write("d/b/y", "3");
  write("d/b/x", "2");
  write("d/a", "1");
  write("d/empty", "");
  const TokenData data({path("d"), write("last", "5")});
  EXPECT_EQ(all_of(data), (Tokens{'1', '2', '3', '4', '5'}));
  EXPECT_EQ(data.num_files(), 5u);
}

TEST_F(DataFiles, FilesOfAFolderThatAreNoTextAreSkipped) {
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
TEST_F(DataFiles, TextIsCheckedToItsEnd) {
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
TEST_F(DataFiles, LongTextOfManyBytesACharacterHasNoNotes) {
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
TEST_F(DataFiles, NamedFilesThatAreNoTextAreRefused) {
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
TEST_F(DataFiles, TextThatLooksLikeAnotherKindIsText) {
  for (const std::string text : {"GIF87a is a format", "GGUF files", "RIFF....WEBP", "BZh91AY&SY",
                                 "12345678{\"a\": 1}", "PAR1 and ARROW1", "7z", "PK zip"}) {
    EXPECT_EQ(TokenData({write("a.txt", text)}).num_tokens(), text.size()) << text;
  }
}

TEST_F(DataFiles, UnusualTextIsReadAndNoted) {
  const TokenData data({write("a.jsonl", "{\"text\": \"a\"}\n"), write("b.txt", "\xef\xbb\xbfx"),
                        write("c.txt", ""), write("d.json", "7"), write("e", " [\n {\"a\": 1}]"),
                        write("f.txt", "in Latin 1: caf\xe9 au lait"), write("g.txt", "{x} [y]"),
                        write("h.csv", "a,b\n"), write("i.tsv", "a\tb\n")});
  EXPECT_EQ(data.num_tokens(), 14u + 4 + 1 + 13 + 24 + 7 + 4 + 4);
  EXPECT_EQ(notes(data), (Lines{"Json a.jsonl", "ByteOrderMark b.txt", "Empty c.txt", "Json d.json",
                                "Json e", "NotUtf8 f.txt", "Table h.csv", "Table i.tsv"}));
}

TEST_F(DataFiles, AFileThatIsReadAgainIsNoted) {
  const std::string a = write("d/a.txt", "12");
  fs::create_symlink("a.txt", path("d/b.txt"));
  const TokenData data({path("d"), a});
  EXPECT_EQ(data.num_tokens(), 6u);
  EXPECT_EQ(notes(data), (Lines{"RepeatedFile d/b.txt", "RepeatedFile d/a.txt"}));
  EXPECT_EQ(data.shared_file(TokenData({path("d/b.txt")})), a);
  EXPECT_EQ(data.shared_file(TokenData({write("other", "12")})), "");
}

TEST_F(DataFiles, LinksToFoldersAreFollowed) {
  write("d/z.txt", "2");
  write("elsewhere/deep/a.txt", "1");
  fs::create_directory_symlink("../elsewhere", path("d/link"));
  const TokenData data({path("d")});
  EXPECT_EQ(all_of(data), (Tokens{'1', '2'}));
  EXPECT_EQ(data.file(0).path(), path("d/link/deep/a.txt"));
  EXPECT_TRUE(data.notes().empty());
}

/// Each folder is read once, and under its own path where it has one in the data.
TEST_F(DataFiles, CyclesOfLinksEnd) {
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

TEST_F(DataFiles, WhatAFolderCannotGiveIsNoted) {
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

TEST(PlainText, IsShortenedBetweenTwoCharacters) {
  EXPECT_EQ(shortened("", 3), "");
  EXPECT_EQ(shortened("abc", 3), "abc");
  EXPECT_EQ(shortened("abcd", 3), "abc...");
  EXPECT_EQ(shortened("ab\xc3\xa9", 3), "ab...");
  EXPECT_EQ(shortened("ab\xf0\x9f\x98\x80", 5), "ab...");
  EXPECT_EQ(shortened("\x80\x80", 1), "...");
}

TEST_F(DataFiles, AnUnreadableFileIsAnErrorWithPathAndReason) {
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

TEST_F(DataFiles, EmptyDataIsRejected) {
  const std::string file = write("empty", "");
  EXPECT_SAYS(error_of<ConfigError>([&] { TokenData({file}); }), file);
  fs::create_directory(path("d"));
  EXPECT_SAYS(error_of<ConfigError>([&] { TokenData({path("d")}); }), "there is no token in data");
  EXPECT_THROW(TokenData({}), ConfigError);
  EXPECT_THROW(TokenData({write_llmc<uint16_t>("a.bin", 20240520, 1, 0, {})}), ConfigError);
}

TEST_F(DataFiles, EmptyDataSaysWhatIsLeftOut) {
  write("d/.hidden.txt", "x");
  const auto hidden = error_of<ConfigError>([&] { TokenData({path("d")}); });
  EXPECT_SAYS(hidden, "'" + path("d/.hidden.txt") + "' is hidden");
  fs::create_symlink("nowhere", path("d/broken"));
  EXPECT_SAYS(error_of<ConfigError>([&] { TokenData({path("d")}); }), "and 1 more are left out");
}

}  // namespace
}  // namespace ebb::test

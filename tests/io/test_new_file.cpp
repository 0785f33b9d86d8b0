// New files and folders appear complete or not at all.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "device/errors.h"
#include "io/new_file.h"
#include "tests/file_size_limit.h"
#include "tests/io/safetensors_files.h"

namespace ebb::test {
namespace {

namespace fs = std::filesystem;

class NewFiles : public FolderTest {};

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST_F(NewFiles, ReplaceTheOldFileAtOnce) {
  write("f", "old");
  NewFile file(path("f"), 6);
  file.write(3, as_bytes("new"));
  file.write(0, as_bytes("the"));
  EXPECT_EQ(content_of(path("f")), "old");
  file.commit();
  EXPECT_EQ(content_of(path("f")), "thenew");
  EXPECT_EQ(names(), std::vector<std::string>{"f"});
  EXPECT_THROW(file.commit(), LogicError);
}

TEST_F(NewFiles, SeveralWritersJoinOne) {
  NewFile file(path("f"), 6);
  file.write(0, as_bytes("the"));
  {
    NewFile other(path("f"), 6, FileUse::Join);
    other.write(3, as_bytes("new"));
    int num_calls = 0;
    other.sync([&] { ++num_calls; });
    EXPECT_GT(num_calls, 0);
    EXPECT_THROW(other.commit(), LogicError);
    EXPECT_THROW(NewFile(path("f"), 7, FileUse::Join), LogicError);
  }
  file.commit();
  EXPECT_EQ(content_of(path("f")), "thenew");
  EXPECT_EQ(names(), std::vector<std::string>{"f"});
  EXPECT_EQ(error_of<IoError>([&] { NewFile(path("f"), 6, FileUse::Join); }).error_number, ENOENT);
}

TEST_F(NewFiles, LeaveNothingIfTheyAreNotCommitted) {
  { NewFile file(path("f"), 6); }
  { const NewFolder folder(path("d")); }
  EXPECT_EQ(names(), std::vector<std::string>{});
}

TEST_F(NewFiles, AreNotWrittenBeyondTheirSize) {
  NewFile file(path("f"), 6);
  EXPECT_THROW(file.write(4, as_bytes("new")), LogicError);
  EXPECT_THROW(file.write(7, {}), LogicError);
}

TEST_F(NewFiles, AFullDiskIsAnErrorBeforeTheFirstWrite) {
  {
    const FileSizeLimit limit(1000);
    EXPECT_THROW(NewFile(path("f"), 1001), IoError);
    NewFile(path("g"), 1000).commit();
  }
  EXPECT_EQ(names(), std::vector<std::string>{"g"});
  EXPECT_EQ(error_of<IoError>([&] { NewFile file(path("no/f"), 1); }).error_number, ENOENT);
}

TEST_F(NewFiles, SmallFilesAreWrittenInOneCall) {
  write_new_file(path("f"), "content");
  write_new_file(path("f"), "");
  EXPECT_EQ(content_of(path("f")), "");
}

TEST_F(NewFiles, FoldersAppearComplete) {
  NewFolder folder(path("d/"));
  write_new_file(folder.path() + "/f", "1");
  EXPECT_EQ(names(), std::vector<std::string>{"d.unfinished"});
  folder.commit();
  EXPECT_EQ(names(), std::vector<std::string>{"d"});
  EXPECT_EQ(content_of(path("d/f")), "1");
}

TEST_F(NewFiles, WhatHasTheTemporaryNameOfAFolderStays) {
  write("d.unfinished/mine", "precious");
  write("e.unfinished", "precious");
  for (const char* name : {"d", "e"}) {
    EXPECT_SAYS(error_of<ConfigError>([&] { NewFolder folder(path(name)); }), "is in the way");
  }
  EXPECT_EQ(content_of(path("d.unfinished/mine")), "precious");
  EXPECT_EQ(content_of(path("e.unfinished")), "precious");
}

TEST_F(NewFiles, FoldersReplaceOnlyEmptyFolders) {
  write("d/f", "kept");
  EXPECT_SAYS(error_of<ConfigError>([&] { NewFolder folder(path("d")); }), "is already there");
  EXPECT_SAYS(error_of<ConfigError>([&] { NewFolder folder(path("d/f")); }), "is already there");
  std::filesystem::create_directory(path("empty"));
  NewFolder(path("empty")).commit();
  EXPECT_EQ(content_of(path("d/f")), "kept");
}

/// A link is rejected before the first write. An empty folder is restored if the new one is not
/// committed.
TEST_F(NewFiles, FoldersReplaceNoLinkAndRestoreAnEmptyFolder) {
  std::filesystem::create_directory(path("empty"));
  std::filesystem::create_directory_symlink(path("empty"), path("link"));
  EXPECT_SAYS(error_of<ConfigError>([&] { NewFolder folder(path("link")); }), "cannot be replaced");
  { const NewFolder folder(path("empty")); }
  EXPECT_EQ(names(), (std::vector<std::string>{"empty", "link"}));
}

TEST_F(NewFiles, ALinkStaysAndItsFileIsReplaced) {
  write("far/real", "old");
  fs::create_symlink("far/real", path("link"));
  fs::create_symlink("link", path("second"));
  fs::create_symlink("far/new", path("dangling"));
  write_new_file(path("second"), "new");
  write_new_file(path("dangling"), "made");
  EXPECT_TRUE(fs::is_symlink(path("second")) && fs::is_symlink(path("link")));
  EXPECT_EQ(content_of(path("far/real")), "new");
  EXPECT_EQ(content_of(path("far/new")), "made");
  EXPECT_TRUE(fs::is_symlink(path("dangling")));
}

TEST_F(NewFiles, ATemporaryNameThatIsALinkIsNotFollowed) {
  const std::string precious = write("precious", "mine");
  fs::create_symlink(precious, path("f.unfinished"));
  write_new_file(path("f"), "content");
  EXPECT_EQ(content_of(precious), "mine");
  EXPECT_EQ(content_of(path("f")), "content");
  EXPECT_FALSE(fs::exists(fs::symlink_status(path("f.unfinished"))));
}

TEST_F(NewFiles, AFifoIsWrittenAndStays) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  const auto error = error_of<IoError>([&] { write_new_file(path("fifo"), "lost"); });
  EXPECT_EQ(error.error_number, ENXIO);
  EXPECT_SAYS(error, "no process reads this FIFO");
  const int reader = ::open(path("fifo").c_str(), O_RDONLY | O_NONBLOCK);
  NewFile file(path("fifo"), 6);
  file.write(0, as_bytes("the"));
  EXPECT_THROW(file.write(4, as_bytes("w")), LogicError) << "a FIFO has no offsets";
  file.write(3, as_bytes("new"));
  file.commit();
  char text[8] = {};
  EXPECT_EQ(::read(reader, text, sizeof text), 6);
  EXPECT_STREQ(text, "thenew");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(path("fifo")));
  write_new_file("/dev/null", "gone");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(NewFiles, FoldersAreCreatedWithTheirParents) {
  create_folders(path("a/b/c/"));
  EXPECT_TRUE(fs::is_directory(path("a/b/c")));
  create_folders(path("a/b/c"));
  write("file", "");
  for (const char* name : {"file", "file/b"}) {
    const auto error = error_of<IoError>([&] { create_folders(path(name)); });
    EXPECT_TRUE(error.error_number == ENOTDIR || error.error_number == EEXIST) << error.what();
  }
}

}  // namespace
}  // namespace ebb::test

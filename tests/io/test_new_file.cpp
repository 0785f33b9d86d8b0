// New files and folders appear complete or not at all.
#include <sys/resource.h>

#include <cerrno>
#include <csignal>

#include "device/errors.h"
#include "io/new_file.h"
#include "tests/io/safetensors_files.h"

namespace ebb::test {
namespace {

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

/// Limits the size of files, as a full disk would.
class DiskLimit {
 public:
  explicit DiskLimit(rlim_t bytes) : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~DiskLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, signal_);
  }

 private:
  rlimit before_ = {};
  void (*signal_)(int);
};

TEST_F(NewFiles, AFullDiskIsAnErrorBeforeTheFirstWrite) {
  {
    const DiskLimit limit(1000);
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
  write("d.unfinished/rest", "from a run that was killed");
  NewFolder folder(path("d/"));
  write_new_file(folder.path() + "/f", "1");
  EXPECT_EQ(names(), std::vector<std::string>{"d.unfinished"});
  folder.commit();
  EXPECT_EQ(names(), std::vector<std::string>{"d"});
  EXPECT_EQ(content_of(path("d/f")), "1");
  EXPECT_FALSE(std::filesystem::exists(path("d/rest")));
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

}  // namespace
}  // namespace ebb::test

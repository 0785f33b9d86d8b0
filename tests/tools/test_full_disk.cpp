// A full disk: the error of the run says how much a checkpoint takes and how much is free. No
// earlier checkpoint is lost.
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>

#include "tests/file_size_limit.h"
#include "tests/tools/checkpoint_runs.h"

namespace ebb::test {
namespace {

namespace fs = std::filesystem;

class FullDisk : public CheckpointRuns {
 protected:
  /// Expects that the run failed while saving, that the earlier checkpoints are complete, and that
  /// a run resumed from them has the same bits.
  void expect_nothing_lost(const Outcome& failed, const std::string& moved_to) const {
    EXPECT_EQ(failed.exit_code, 1) << failed.err;
    EXPECT_SAYS(failed.err, "is not saved, earlier checkpoints are unchanged");
    EXPECT_SAYS(failed.err, " MiB");
    for (const std::string& name : names_saved()) {
      EXPECT_EQ(name.find('.'), std::string::npos) << "an unfinished checkpoint: " << name;
    }
    EXPECT_GE(names_saved().size(), 1u);
    if (moved_to != save()) fs::copy(save(), moved_to, fs::copy_options::recursive);
    succeed({"train", "--resume", "--save", moved_to, "--log", log_});
    EXPECT_EQ(log(), whole());
  }
};

TEST_F(FullDisk, AFileSizeLimit) {
  succeed(train({"--save", save(), "--save-steps", "3"}));
  fs::remove_all(saved(8));
  Outcome failed;
  {
    const FileSizeLimit limit(1 << 20);
    failed = run({"train", "--resume", "--save", save()});
  }
  EXPECT_SAYS(failed.err, "File too large");
  expect_nothing_lost(failed, save());
}

TEST_F(FullDisk, ASmallFileSystem) {
  fs::create_directories(save());
  if (::mount("tmpfs", save().c_str(), "tmpfs", 0, "size=32m") != 0) {
    GTEST_SKIP() << "mounting is not allowed here";
  }
  const Outcome failed = run(train({"--save", save(), "--save-steps", "2"}));
  EXPECT_SAYS(failed.err, "No space left on device");
  EXPECT_EQ(names_saved(), (std::vector<std::string>{"step-2", "step-4"}));
  expect_nothing_lost(failed, path("larger"));
  succeed({"train", "--resume", "--save", path("larger"), "--steps", "9"});
  ::umount(save().c_str());
}

TEST_F(FullDisk, AFullDiskOfTheLogLeavesACheckpoint) {
  const std::string disk = path("small");
  fs::create_directories(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=8k") != 0) {
    GTEST_SKIP() << "mounting is not allowed here";
  }
  const Outcome failed =
      run(train({"--steps", "40", "--save", save(), "--log", disk + "/log.jsonl"}));
  ::umount(disk.c_str());
  EXPECT_EQ(failed.exit_code, 1) << failed.err;
  EXPECT_SAYS(failed.err, "cannot write log");
  ASSERT_EQ(names_saved().size(), 1u) << failed.err;
  succeed({"train", "--resume", "--save", save(), "--log", log_});
  const auto last = log().back();
  succeed(train({"--steps", "40"}));
  EXPECT_EQ(last, log().back()) << "the bits are those of a run that did not fail";
}

TEST_F(FullDisk, IsFoundBeforeTheFirstStep) {
  fs::create_directories(save());
  if (::mount("tmpfs", save().c_str(), "tmpfs", 0, "size=2m") != 0) {
    GTEST_SKIP() << "mounting is not allowed here";
  }
  const Outcome failed = run(train({"--save", save()}));
  ::umount(save().c_str());
  EXPECT_EQ(failed.exit_code, 1) << failed.err;
  EXPECT_SAYS(failed.err, "a checkpoint needs 12.");
  EXPECT_SAYS(failed.err, "2 MiB are free");
  EXPECT_EQ(failed.err.find("step 1/"), std::string::npos);
}

TEST_F(FullDisk, AFolderWithoutWritePermission) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everything";
  fs::create_directories(save());
  fs::permissions(save(), fs::perms::owner_read | fs::perms::owner_exec);
  const Outcome failed = run(train({"--save", save()}));
  fs::permissions(save(), fs::perms::owner_all);
  EXPECT_EQ(failed.exit_code, 1) << failed.err;
  EXPECT_SAYS(failed.err, "Permission denied");
}

}  // namespace
}  // namespace ebb::test

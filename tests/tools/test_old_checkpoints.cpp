// An old checkpoint that cannot be removed does not end the run, because the new checkpoint is
// saved. The next run continues too.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "tests/tools/checkpoint_runs.h"
#include "tools/checkpoint.h"

namespace ebb::test {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

/// Makes a folder that cannot be removed until this is destroyed: for root a mount point, for other
/// users a folder without write permission.
class Unremovable {
 public:
  explicit Unremovable(std::string path) : path_(std::move(path)) {
    fs::create_directories(path_ + "/inner");
    works_ = ::geteuid() != 0 || ::mount("tmpfs", path_.c_str(), "tmpfs", 0, "size=64k") == 0;
    if (::geteuid() != 0) fs::permissions(path_, fs::perms::owner_read | fs::perms::owner_exec);
  }
  ~Unremovable() {
    std::error_code ignored;
    if (!works_) return;
    if (::geteuid() == 0) {
      ::umount(path_.c_str());
    } else {
      fs::permissions(path_, fs::perms::owner_all, ignored);
    }
  }
  Unremovable(const Unremovable&) = delete;
  Unremovable& operator=(const Unremovable&) = delete;

  bool works() const { return works_; }
  /// Gives the new path of the folder, after a folder above it was renamed.
  void set_path(std::string path) { path_ = std::move(path); }

 private:
  std::string path_;
  bool works_ = false;
};

class OldCheckpoints : public CheckpointRuns {
 protected:
  std::string removed(int step) const { return saved(step) + ".removed"; }
  Outcome resume(const std::string& steps) const {
    return run({"train", "--resume", "--save", save(), "--save-keep", "1", "--steps", steps});
  }
};

TEST_F(OldCheckpoints, ThatCannotBeRemovedDoNotEndTheRun) {
  succeed(train({"--save", save(), "--steps", "3"}));
  Unremovable inside(saved(3) + "/kept");
  if (!inside.works()) GTEST_SKIP() << "mounting is not allowed here";
  const Outcome outcome = resume("6");
  if (fs::exists(removed(3))) inside.set_path(removed(3) + "/kept");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_SAYS(outcome.err, "saved '" + saved(6) + "'\n");
  EXPECT_SAYS(outcome.err, "cannot remove the old checkpoint '" + removed(3) + "': ");
  EXPECT_EQ(names_saved(), (Names{"step-3.removed", "step-6"}));

  const Outcome next = resume("8");
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_EQ(names_saved(), (Names{"step-3.removed", "step-8"}));
}

TEST_F(OldCheckpoints, AreRemovedAlthoughAnotherCannotBe) {
  for (const std::string name : {"step-1", "step-2", "step-3", "step-1.removed"}) {
    fs::create_directories(path("save/" + name));
    folder_.write("save/" + name + "/training.json", "{}");
  }
  Names notices;
  remove_old_checkpoints(save(), 3, 1, {},
                         [&](const std::string& text) { notices.push_back(text); });
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_SAYS(notices[0], "cannot remove the old checkpoint '" + saved(1) + "': ");
  EXPECT_EQ(names_saved(), (Names{"step-1", "step-1.removed", "step-3"}));
}

/// A save of the same step would need the name of the unfinished checkpoint.
TEST_F(OldCheckpoints, UnfinishedOnesThatCannotBeRemovedAreAnError) {
  const Unremovable unfinished(saved(3) + ".unfinished");
  if (!unfinished.works()) GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_FAILS(run(train({"--save", save()})), 1, "cannot clear folder of checkpoints");
}

}  // namespace
}  // namespace ebb::test

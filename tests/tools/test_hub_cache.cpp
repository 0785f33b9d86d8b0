// Models that are named by their id are found in the cache of huggingface_hub.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "tests/model_zoo/hf_folder.h"
#include "tests/tools/model_folders.h"
#include "tests/tools/run_ebb.h"

namespace ebb::test {
namespace {

namespace fs = std::filesystem;

using HubModels = ModelFolderRuns;

/// Sets HF_HUB_CACHE to `hub` in the test's folder.
class HubCache {
 public:
  explicit HubCache(const fs::path& folder)
      : variable_("HF_HUB_CACHE", folder / "hub"), model_(folder / "hub" / "models--some--tiny") {
    fs::create_directories(model_ / "snapshots");
    fs::create_directories(model_ / "refs");
  }

  const fs::path& model() const { return model_; }
  void add(const char* snapshot) const {
    fs::create_directory_symlink(hf_folder("gpt2"), model_ / "snapshots" / snapshot);
  }

 private:
  EnvironmentVariable variable_;
  fs::path model_;
};

TEST_F(HubModels, AreFoundInTheCacheByTheirId) {
  const HubCache cache(folder_.path());
  cache.add("abc");
  fs::create_directory(cache.model() / "snapshots" / "older");
  std::ofstream(cache.model() / "refs" / "main") << "abc";
  const Outcome outcome = train({"--model", "some/tiny"}, {"--dry-run"});
  const Outcome other = train({"--model", "some/other"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_SAYS(outcome.out, "some/tiny: 2 layers");
  EXPECT_FAILS(other, 2, "hf download some/other");
}

TEST_F(HubModels, OfTheCacheWithSeveralSnapshotsAreListed) {
  const HubCache cache(folder_.path());
  const Arguments dry = {"--dry-run"};
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2, "hf download some/tiny");
  cache.add("bbb");
  EXPECT_EQ(train({"--model", "some/tiny"}, dry).exit_code, 0);  // the only one
  EXPECT_EQ(train({"--model", cache.model().string()}, dry).exit_code, 0);
  cache.add("aaa");
  const std::string list = (cache.model() / "snapshots/aaa").string() + "', '" +
                           (cache.model() / "snapshots/bbb").string() + "'";
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2, "there are several snapshots");
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2, list);
  EXPECT_FAILS(train({"--model", cache.model().string()}), 2, list);
  std::ofstream(cache.model() / "refs/main") << "ccc";
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2,
               "names the snapshot 'ccc', which does not exist");
  std::ofstream(cache.model() / "refs/main") << "bbb\n";
  EXPECT_EQ(train({"--model", "some/tiny"}, dry).exit_code, 0);
}

TEST_F(HubModels, OfTheCacheWithBrokenParts) {
  const HubCache cache(folder_.path());
  const Arguments dry = {"--dry-run"};
  fs::create_symlink("/gone/abc", cache.model() / "snapshots" / "abc");
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2, "snapshots/abc' is a link to '/gone/abc'");
  std::ofstream(cache.model() / "refs/main") << "abc";
  cache.add("bbb");
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2, "snapshots/abc' is a link to '/gone/abc'");
  std::ofstream(cache.model() / "refs/main") << "";
  EXPECT_EQ(train({"--model", "some/tiny"}, dry).exit_code, 0);  // the only one
  cache.add("ccc");
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2, "refs/main' names no snapshot");
  fs::remove(cache.model() / "refs/main");
  fs::create_directory(cache.model() / "refs/main");
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2, "refs/main' is a folder and not a file");
}

/// The variables of huggingface_hub, with their expansions.
TEST_F(HubModels, AreFoundInTheCacheThatTheVariablesName) {
  fs::create_directories(path("x/hub/models--some--tiny/snapshots"));
  fs::create_directory_symlink(hf_folder("gpt2"), path("x/hub/models--some--tiny/snapshots/abc"));
  const EnvironmentVariable others[] = {{"HOME", folder_.path()},
                                        {"EBB_TEST_X", "x"},
                                        {"HF_HUB_CACHE", std::nullopt},
                                        {"HUGGINGFACE_HUB_CACHE", std::nullopt},
                                        {"HF_HOME", std::nullopt}};
  for (const auto& [name, value] :
       {std::pair{"HF_HUB_CACHE", "~/x/hub"}, std::pair{"HF_HUB_CACHE", "$HOME/x/hub"},
        std::pair{"HF_HUB_CACHE", "${HOME}/${EBB_TEST_X}/hub"},
        std::pair{"HUGGINGFACE_HUB_CACHE", "~/$EBB_TEST_X/hub"}, std::pair{"HF_HOME", "~/x"},
        std::pair{"HF_HOME", "$HOME/x"}}) {
    const EnvironmentVariable variable(name, value);
    const Outcome outcome = train({"--model", "some/tiny"}, {"--dry-run"});
    EXPECT_EQ(outcome.exit_code, 0) << name << "=" << value << "\n" << outcome.err;
  }
  // Names that are not set stay.
  const EnvironmentVariable unset("HF_HUB_CACHE", "/$EBB_TEST_NONE/hub$");
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2, "in '/$EBB_TEST_NONE/hub$/models--some--tiny'");
  const EnvironmentVariable of_other("HF_HUB_CACHE", "~other/hub");
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2, "HF_HUB_CACHE '~other/hub': allowed is ~/");
}

TEST_F(HubModels, WithNamesThatAreNoIdsAreRefused) {
  for (const char* name : {"some/tiny@abc", "https://huggingface.co/some/tiny", "a/b/c",
                           "some/tiny:main", "some/", "hf://some/tiny"}) {
    EXPECT_FAILS(train({"--model", name}), 2, "a hub id has the form org/name");
  }
}

}  // namespace
}  // namespace ebb::test

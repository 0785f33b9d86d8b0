// The file of --config: which files are read, and its values as flags of `ebb train`.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/errors.h"
#include "tests/tools/run_ebb.h"
#include "tools/cli.h"
#include "tools/config_file.h"
#include "tools/run_config.h"
#include "tools/train_flags.h"

namespace ebb::tests_of_config_file {
namespace {

const std::vector<Flag> kFlags = {{{"--steps"}, "", "", "Data", Flag::Takes::One}};

class ConfigFiles : public testing::Test {
 protected:
  std::string error_of_file(const std::string& path) const {
    return test::error_of<ConfigError>([&] { read_config_file(path, kFlags); }).what();
  }
  TemporaryFolder folder_;
  std::string folder() const { return folder_.path().string(); }
};

TEST_F(ConfigFiles, FilesThatCannotBeReadAreRefused) {
  const std::string missing = folder() + "/no\n.toml", pipe = folder() + "/pipe",
                    link = folder() + "/link";
  EXPECT_EQ(error_of_file(missing), "--config: cannot open configuration file '" + folder() +
                                        "/no\\n.toml': No such file or directory");
  EXPECT_EQ(error_of_file(folder()),
            "--config: configuration file '" + folder() + "': not a regular file (it is a folder)");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error_of_file(pipe),
            "--config: configuration file '" + pipe + "': not a regular file (it is a pipe)");
  EXPECT_EQ(error_of_file("/dev/zero"),
            "--config: configuration file '/dev/zero': not a regular file (it is a device or a "
            "socket)");
  std::filesystem::create_symlink(folder() + "/nowhere", link);
  EXPECT_EQ(error_of_file(link),
            "--config: '" + link + "' is a link to '" + folder() +
                "/nowhere', which does not exist: restore that file, or replace the link by the "
                "file");
  EXPECT_EQ(error_of_file(""),
            "--config: cannot open configuration file '': No such file or directory");
  const std::string large = folder_.write("large.toml", "steps = 1\n");
  std::filesystem::resize_file(large, size_t{1} << 30);
  EXPECT_EQ(error_of_file(large), "--config: '" + large +
                                      "' at byte 16777216: configuration file of 1 GiB; allowed "
                                      "are at most 16 MiB");
}

TEST_F(ConfigFiles, FilesAndLinksAreRead) {
  const std::string file = folder_.write("my run.toml", "steps = 3\n");
  std::filesystem::create_symlink(file, folder() + "/link.toml");
  for (const std::string& path : {file, folder() + "/link.toml"}) {
    const auto values = read_config_file(path, kFlags);
    ASSERT_EQ(values.size(), 1u);
    EXPECT_EQ(values[0].flag, (FlagValue{"steps", {"3"}}));
  }
}

/// The flags of `ebb train`, with a file and arguments.
class TrainConfig : public ConfigFiles {
 protected:
  TrainOptions parse_line(const Arguments& arguments) {
    options_ = {};
    line_ = std::make_unique<CommandLine>("test", "ebb train");
    add_train_flags(*line_, options_);
    EXPECT_TRUE(parse_arguments(*line_, arguments, true));
    return options_;
  }
  TrainOptions parse(const std::string& text, const Arguments& arguments = {}) {
    return parse_line(Arguments{"--config", folder_.write("run.toml", text)} + arguments);
  }
  std::string error_of_line(const Arguments& arguments) {
    return test::error_of<ConfigError>([&] { parse_line(arguments); }).what();
  }
  std::string error_of(const std::string& text, const Arguments& arguments = {}) {
    return test::error_of<ConfigError>([&] { parse(text, arguments); }).what();
  }
  TrainOptions options_;
  std::unique_ptr<CommandLine> line_;
};

TEST_F(TrainConfig, IsReadAndTheCommandLineWins) {
  const TrainOptions o = parse(
      "# a run\npreset = \"gpt2\"\ndata = [\"a\", \"b\"]\nsteps = 20\nlr = 1e-3\nclip = 0.5\n"
      "chunk-size = \"8MiB\"\nlink = \"12GB/s,6GB/s\"\ndry-run = true\n",
      {"--steps", "30"});
  validate(o);
  EXPECT_EQ(o.preset, "gpt2");
  EXPECT_EQ(o.data, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(o.steps, 30u);
  EXPECT_EQ(o.learning_rate, 1e-3);
  EXPECT_EQ(o.max_grad_norm, 0.5);
  EXPECT_EQ(o.chunk_size, size_t{8} << 20);
  EXPECT_EQ(o.link.store_bytes_per_s, 6e9);
  EXPECT_TRUE(o.dry_run);
}

TEST_F(TrainConfig, TextIsReadAsACheckpointWroteIt) {
  const std::vector<std::string> texts = {"plain",         "two words", R"(a "quoted" name)",
                                          R"(back\slash)", "it's",      R"(3\" disk)"};
  const TrainOptions o = parse(to_toml({{"preset", {"gpt2"}}, {"data", texts}}), {"--steps", "1"});
  validate(o);
  EXPECT_EQ(o.data, texts);
}

TEST_F(TrainConfig, UnknownKeysAndBadValuesAreErrors) {
  EXPECT_SAYS(error_of("bogus = 1\n"), "bogus");
  EXPECT_SAYS(error_of("[train]\nsteps = 1\n"), "train");
  EXPECT_SAYS(error_of("steps = -1\n"), "--steps '-1'");
  EXPECT_SAYS(error_of_line({"--config", "/nonexistent/x.toml"}),
              "--config: cannot open configuration file '/nonexistent/x.toml'");
  EXPECT_SAYS(error_of_line({"--config", "/tmp"}),
              "--config: configuration file '/tmp': not a regular file");
}

TEST_F(TrainConfig, TheCommandLineWinsAlsoOverWhatItExcludes) {
  const TrainOptions o = parse(
      "steps = 5\nrecompute = 'none'\nwarmup-steps = 3\n[Model]\npreset = 'gpt2'\n[Data]\ndata = "
      "['a', 'b']\n",
      {"--epochs", "2", "--gradient-checkpointing", "--data", "c", "--model", "m", "--warmup-ratio",
       "0.1"});
  EXPECT_FALSE(o.steps);
  EXPECT_EQ(o.epochs, 2u);
  EXPECT_EQ(o.schedule.recompute, RecomputeRequest(kRecomputeEach));
  EXPECT_EQ(o.data, std::vector<std::string>{"c"});
  EXPECT_EQ(o.preset, "");
  EXPECT_FALSE(o.warmup_steps);
  EXPECT_EQ(parse("steps = 5\nepochs = 2\n").steps, 5u);  // both: validate() refuses them
}

TEST_F(TrainConfig, RefusedValuesNameTheLine) {
  const std::string place = "--config " + folder() + "/run.toml:2:1: ";
  EXPECT_EQ(error_of("\nsteps = -1"),
            place + "--steps '-1': allowed is a whole number, at least 1");
  for (const char* value : {"2.0", "9007199254740993.0", "1e3"}) {
    EXPECT_TRUE(error_of(std::string("\nsteps = ") + value)
                    .starts_with(place + "--steps '" + value + "': allowed is a whole number"));
  }
  EXPECT_TRUE(
      error_of("\ndevice-memory = 8388608.7").starts_with(place + "--device-memory '8388608.7'"));
  EXPECT_TRUE(
      error_of("\nlr = 1e-400").starts_with(place + "--lr '1e-400': allowed is a number from"));
  EXPECT_LT(error_of("\npreset = '" + std::string(1 << 20, 'x') + "'").size(), 400u);
  EXPECT_LT(error_of("\nlr = '" + std::string(1 << 20, 'x') + "'").size(), 400u);
  EXPECT_EQ(error_of("\nsteps = 1.5"),
            place + "--steps '1.5': allowed is a whole number, at least 1");
  EXPECT_TRUE(error_of("\nlr = nan").starts_with(place + "--lr 'nan'")) << error_of("\nlr = nan");
  EXPECT_TRUE(error_of("\nlr = inf").starts_with(place + "--lr 'inf'"));
  EXPECT_EQ(error_of("config = 'x'"),
            "--config " + folder() + "/run.toml:1:1: --config is allowed only on the command line");
}

TEST_F(TrainConfig, NamesInBracketsAreNotLists) {
  EXPECT_EQ(parse("data = '[a,b]'").data, std::vector<std::string>{"[a,b]"});
  EXPECT_EQ(parse("data = ['[a,b]', '[]']").data, (std::vector<std::string>{"[a,b]", "[]"}));
}

TEST_F(TrainConfig, EverySwitchOfACheckpointIsReadBack) {
  parse("");
  for (const char* name : {"gradient-checkpointing", "save-weights-only"}) {
    EXPECT_TRUE(line_->give({name, {"true"}}));
  }
  const RunConfig given = given_flags(*line_);
  ASSERT_EQ(given.size(), 2u);
  const TrainOptions o = parse(to_toml(given));
  EXPECT_TRUE(o.save_weights_only);
  EXPECT_EQ(o.schedule.recompute, RecomputeRequest(kRecomputeEach));
  EXPECT_EQ(given_flags(*line_), given);
  try {
    (void)parse_arguments(*line_, {kAskForFlags}, false);
    FAIL();
  } catch (const FlagsAsked& asked) {
    for (const Flag& flag : asked.command.flags) {
      const std::string name = flag.names.back().substr(2);
      if (flag.takes != Flag::Takes::Nothing || name == "help" || name == "dry-run") continue;
      parse_line({"--" + name});
      EXPECT_EQ(to_toml(given_flags(*line_)), name + " = true\n");
    }
  }
}

TEST_F(TrainConfig, TheHomeFolderIsExpandedInPaths) {
  const EnvironmentVariable home("HOME", "/home/me");
  const TrainOptions o =
      parse("save = '~/run'\ndata = ['~/a', '~', './~b', 'c~/d', '/~/e']\nlog = '~//x'\n",
            {"--trace=~/t.json", "--eval-data", "~/f", "~/g"});
  const RunConfig given = given_flags(*line_);
  const std::string user = error_of("\nsave = '~other/run'");
  const std::string argument = error_of("", {"--save=~other"});
  const EnvironmentVariable no_home("HOME", std::nullopt);
  const std::string unset = error_of("save = '~/run'");
  const std::string untouched = parse("save = 'run'").save;
  EXPECT_EQ(o.save, "/home/me/run");
  EXPECT_EQ(o.data, (std::vector<std::string>{"/home/me/a", "/home/me", "./~b", "c~/d", "/~/e"}));
  EXPECT_EQ(o.log, "/home/me//x");
  EXPECT_EQ(o.trace, "/home/me/t.json");
  EXPECT_EQ(o.eval_data, (std::vector<std::string>{"/home/me/f", "/home/me/g"}));
  ASSERT_NE(find(given, "save"), nullptr);
  EXPECT_EQ(find(given, "save")->values, std::vector<std::string>{"/home/me/run"});
  EXPECT_EQ(user, "--config " + folder() +
                      "/run.toml:2:1: --save '~other/run': allowed is ~/ for your home folder, or "
                      "./~other/run for a name that begins with ~");
  EXPECT_TRUE(argument.starts_with("--save '~other': allowed is")) << argument;
  EXPECT_SAYS(unset, "--save '~/run': allowed is a path without ~, because HOME");
  EXPECT_EQ(untouched, "run");
}

}  // namespace
}  // namespace ebb::tests_of_config_file

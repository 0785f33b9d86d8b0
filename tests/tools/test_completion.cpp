// Compares completions and the manual with --help, which other code makes from the same flags, and
// runs completions in the shells.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tools/run_ebb.h"
#include "tools/command_flags.h"
#include "tools/commands.h"
#include "tools/completion.h"

namespace ebb {
namespace {

using Words = std::vector<std::string>;

Flag with_value(const std::string& value) {
  Flag flag{.names = {}, .value = value, .description = "", .group = ""};
  read_value(flag);
  return flag;
}

TEST(CommandFlags, ValuesNameTheirChoices) {
  EXPECT_EQ(with_value("auto|fp32|bf16-dot [auto]").choices, (Words{"auto", "fp32", "bf16-dot"}));
  EXPECT_EQ(with_value("none|block|N|auto [auto]").choices, (Words{"none", "block", "auto"}));
  EXPECT_TRUE(with_value("SIZE/s[,SIZE/s]").choices.empty());
  EXPECT_TRUE(with_value("N [100]").choices.empty());
  EXPECT_TRUE(with_value("").choices.empty());
  EXPECT_TRUE(with_value("this|NAME|FILE [this]").file);
  EXPECT_TRUE(with_value("PATH...").file);
  EXPECT_TRUE(with_value("[DIR]").file);
  EXPECT_FALSE(with_value("NAME").file);
}

class Completion : public testing::Test {
 protected:
  std::string text_of(const Words& arguments) const {
    const Outcome outcome = run_ebb(arguments, folder_.path());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  }

  /// What a command of the shell prints, run in the folder.
  std::string shell(const std::string& command) const {
    const std::string out = (folder_.path() / "shell").string();
    const std::string line =
        "cd '" + folder_.path().string() + "' && " + command + " >" + out + " 2>&1";
    EXPECT_EQ(std::system(line.c_str()), 0) << line << content_of(out);
    return content_of(out);
  }

  /// What bash proposes for the last of these words.
  std::set<std::string> bash(const Words& words) const {
    folder_.write("ebb.bash", text_of({"completion", "bash"}));
    std::string script = "source ./ebb.bash\nCOMP_WORDS=(";
    for (const std::string& word : words) script += "'" + word + "' ";
    script += ")\nCOMP_CWORD=" + std::to_string(words.size() - 1);
    script += "\n_ebb\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
    folder_.write("try.bash", script);
    std::istringstream lines(shell("bash ./try.bash"));
    std::set<std::string> proposals;
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty()) proposals.insert(line);
    }
    return proposals;
  }

  const TemporaryFolder folder_;
};

/// The flags that --help lists: those at the beginning of a line, and their other names.
std::set<std::string> flags_of_help(const std::string& help) {
  std::set<std::string> flags;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  -")) continue;
    std::istringstream names(line.substr(2, line.find(' ', 2) - 2));
    for (std::string name; std::getline(names, name, ',');) {
      if (name.starts_with("--")) flags.insert(name);
    }
  }
  return flags;
}

TEST_F(Completion, EveryFlagOfHelpIsInEveryText) {
  const std::string zsh = text_of({"completion", "zsh"}), fish = text_of({"completion", "fish"});
  std::string man = text_of({"man"});
  for (size_t at; (at = man.find("\\-")) != std::string::npos;) man.erase(at, 1);
  size_t num_flags = 0;
  for (const CommandFlags& command : described_commands()) {
    const auto flags = flags_of_help(text_of({command.name, "--help"}));
    ASSERT_TRUE(flags.count("--help")) << command.name;
    const auto proposed = bash({"ebb", command.name, "--"});
    EXPECT_EQ(proposed, flags) << command.name;
    for (const std::string& flag : flags) {
      const bool in_zsh = zsh.find("'" + flag + "[") != std::string::npos ||
                          zsh.find("'*" + flag + "[") != std::string::npos;
      EXPECT_TRUE(in_zsh) << flag;
      EXPECT_NE(fish.find("from " + command.name + "' "), std::string::npos) << command.name;
      EXPECT_NE(fish.find("-l " + flag.substr(2)), std::string::npos) << flag;
      EXPECT_NE(man.find("\\fB" + flag + "\\fR"), std::string::npos) << flag;
    }
    num_flags += flags.size();
  }
  EXPECT_GT(num_flags, 100u);
}

TEST_F(Completion, BashProposesCommandsFlagsValuesAndFiles) {
  using Set = std::set<std::string>;
  EXPECT_EQ(bash({"ebb", "tr"}), Set{"train"});
  EXPECT_EQ(bash({"ebb", "train", "--rec"}), Set{"--recompute"});
  EXPECT_EQ(bash({"ebb", "train", "--dtype", "b"}), Set{"bf16"});
  EXPECT_EQ(bash({"ebb", "train", "--dtype", "=", "b"}), Set{"bf16"});
  EXPECT_EQ(bash({"ebb", "train", "--activations", "="}), (Set{"auto", "device", "offload"}));
  EXPECT_EQ(bash({"ebb", "train", "--preset", "gpt2-x"}), Set{"gpt2-xl"});
  EXPECT_TRUE(bash({"ebb", "plan", "--machine", "rtx4"}).count("rtx4090"));
  EXPECT_EQ(bash({"ebb", "train", "--steps", ""}), Set{});
  EXPECT_EQ(bash({"ebb", "train", "--data", "try"}), Set{"try.bash"});
  EXPECT_EQ(bash({"ebb", "train", "--data", "a", "try"}), Set{"try.bash"});
  EXPECT_TRUE(bash({"ebb", "completion", ""}).count("fish"));
}

/// Every installed shell reads its script. For other shells the test reports a skip.
TEST_F(Completion, TheShellsCanReadThem) {
  for (const char* name : {"bash", "zsh", "fish"}) {
    const std::string script = text_of({"completion", name});
    EXPECT_EQ(script.find('\0'), std::string::npos) << name;
    EXPECT_TRUE(script.ends_with("\n")) << name;
    const std::string check = "command -v " + std::string(name) + " >/dev/null";
    if (std::system(check.c_str()) != 0) continue;
    folder_.write("script", script);
    EXPECT_EQ(shell(std::string(name) + " -n ./script"), "") << name;
  }
}

TEST_F(Completion, TheManualHasNoWarnings) {
  if (std::system("command -v groff >/dev/null") != 0) GTEST_SKIP() << "no groff here";
  folder_.write("ebb.1", text_of({"man"}));
  EXPECT_EQ(shell("groff -man -ww -z -Tutf8 ebb.1"), "");
}

TEST_F(Completion, NamesItsShells) {
  const Outcome outcome = run_ebb({"completion", "tcsh"}, folder_.path());
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("bash, zsh, fish"), std::string::npos) << outcome.err;
  EXPECT_EQ(run_ebb({"completion"}, folder_.path()).exit_code, 2);
}

TEST(CompletionTexts, QuotesStayInsideTheirText) {
  const std::vector<CommandFlags> commands = {
      {"go",
       "it's a: test",
       "",
       {{{"--x"}, "A|b", "don't [or: do]", "G", Flag::Takes::One, false, {"b"}}}}};
  EXPECT_NE(zsh_completion(commands).find("'go:it'\\''s a\\: test'"), std::string::npos);
  EXPECT_NE(zsh_completion(commands).find("'--x[don'\\''t \\[or\\: do\\]]:A|b:(b)'"),
            std::string::npos)
      << zsh_completion(commands);
  EXPECT_NE(fish_completion(commands).find("-d 'don\\'t [or: do]'"), std::string::npos);
}

}  // namespace
}  // namespace ebb

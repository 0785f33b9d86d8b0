// The text of a file of --config: values, refusals and places, and what checkpoints write.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "device/errors.h"
#include "tests/error_of.h"
#include "tools/config_file.h"
#include "tools/run_config.h"

namespace ebb::tests_of_config_text {
namespace {

using Takes = Flag::Takes;

Flag flag_of(std::vector<std::string> names, std::string group, Takes takes) {
  return {std::move(names), "", "", std::move(group), takes};
}

const std::vector<Flag> kFlags = {flag_of({"-h", "--help"}, "General", Takes::Nothing),
                                  flag_of({"--config"}, "General", Takes::One),
                                  flag_of({"--model"}, "Model", Takes::One),
                                  flag_of({"--seed"}, "Model", Takes::One),
                                  flag_of({"--data"}, "Data", Takes::Several),
                                  flag_of({"--steps"}, "Data", Takes::One),
                                  flag_of({"--lr"}, "Optimizer", Takes::One),
                                  flag_of({"--max-grad-norm", "--clip"}, "Optimizer", Takes::One),
                                  flag_of({"--save"}, "Output", Takes::One),
                                  flag_of({"--resume"}, "Output", Takes::Perhaps),
                                  flag_of({"--dry-run"}, "Output", Takes::Nothing)};

std::vector<ConfigValue> read(std::string_view text) {
  return read_config_text("run.toml", text, kFlags);
}

/// "steps=20 data=a|b", in the order of the file.
std::string read_as_one_line(std::string_view text) {
  std::string line;
  for (const ConfigValue& value : read(text)) {
    line += fmt::format("{}{}={}", line.empty() ? "" : " ", value.flag.name,
                        fmt::join(value.flag.values, "|"));
  }
  return line;
}

/// The message after "--config run.toml:".
std::string error_of(std::string_view text) {
  try {
    return "no error, but " + read_as_one_line(text);
  } catch (const ConfigError& error) {
    const std::string message = error.what(), start = "--config run.toml:";
    return message.starts_with(start) ? message.substr(start.size()) : message;
  }
}

struct Row {
  std::string text;
  std::string expected;
};

TEST(ConfigText, IsReadAsToml1) {
  const Row rows[] = {
      // Comments, white space and ends of lines.
      {"", ""},
      {"# only a comment", ""},
      {"steps = 3 # comment", "steps=3"},
      {"\n\n  steps=3\t\n", "steps=3"},
      {"steps = 3\r\nlr = 1\r\n", "steps=3 lr=1"},
      {"\xEF\xBB\xBFsteps = 3\n", "steps=3"},
      // Keys: bare, quoted, dotted; tables, which may be empty and need not be in order.
      {"\"steps\" = 3", "steps=3"},
      {"'steps' = 3", "steps=3"},
      {"data.steps = 3\nData . \"data\" = 'x'", "steps=3 data=x"},
      {"steps = 3\n[Optimizer]\nlr = 0.5\n[MODEL]\n[output]\nsave = 'a'", "steps=3 lr=0.5 save=a"},
      {"[ Data ]\nsteps = 3\n[data]\ndata = 'x'", "steps=3 data=x"},
      {"optimizer = {lr = 1, clip = 2}", "lr=1 max-grad-norm=2"},
      {"model = \"m\"\n[Model]\nseed = 3", "model=m seed=3"},
      // Basic strings and their escapes.
      {R"(save = "run#3")", "save=run#3"},
      {R"(save = "")", "save="},
      {R"(save = "\b\t\n\f\r\"\\")", "save=\b\t\n\f\r\"\\"},
      {R"(save = "\u00E9\U0001F600")", "save=\xC3\xA9\xF0\x9F\x98\x80"},
      {R"(save = "it's # a 'name'")", "save=it's # a 'name'"},
      {"save = \"\xC3\xA9\ttab\"", "save=\xC3\xA9\ttab"},
      // Literal strings, and strings of several lines.
      {R"(save = 'C:\new\"x"')", R"(save=C:\new\"x")"},
      {"save = \"\"\"\na\nb\"\"\"", "save=a\nb"},
      {"save = \"\"\"a\\\n   \n  b\"\"\"", "save=ab"},
      {"save = \"\"\"a\\\n  \xC3\xA9\"\"\"", "save=a\xC3\xA9"},
      {"save = '''a'b''c\\n'''", "save=a'b''c\\n"},
      {"save = \"\"\"\"quoted\"\"\"\"", "save=\"quoted\""},
      {"save = \"\"\"a\"\"\"\"\" # two quotes before the end\nsteps = 1", "save=a\"\" steps=1"},
      // Integers.
      {"seed = 1_000", "seed=1000"},
      {"seed = +99", "seed=99"},
      {"seed = -17", "seed=-17"},
      {"seed = -0", "seed=0"},
      {"seed = 0xDead_BEEF", "seed=3735928559"},
      {"seed = 0o755", "seed=493"},
      {"seed = 0b1101", "seed=13"},
      {"seed = 9223372036854775807", "seed=9223372036854775807"},
      {"seed = -9223372036854775808", "seed=-9223372036854775808"},
      // Other numbers: their text, without "+" and "_".
      {"seed = 2.0", "seed=2.0"},
      {"seed = 9007199254740993.0 # beyond fp64", "seed=9007199254740993.0"},
      {"lr = 1e-400", "lr=1e-400"},
      {"lr = +0.5", "lr=0.5"},
      {"model = '\xC3\xA9' # \xC3\xA9\r\n[Data]\r\ndata = ['\xC3\xA9', 1.50,2.5]\r\n",
       "model=\xC3\xA9 data=\xC3\xA9|1.50|2.5"},
      {"\xEF\xBB\xBFlr = 1.0", "lr=1.0"},
      {"optimizer = {lr = 1.0, clip = 2.0}", "lr=1.0 max-grad-norm=2.0"},
      {"lr = 1e-3", "lr=1e-3"},
      {"lr = 3.00", "lr=3.00"},
      {"lr = 6.626E-34", "lr=6.626E-34"},
      {"lr = 5e+22", "lr=5e+22"},
      {"lr = 1e06", "lr=1e06"},
      {"lr = 224_617.445_991_228", "lr=224617.445991228"},
      {"lr = 0.1", "lr=0.1"},
      {"lr = inf", "lr=inf"},
      {"lr = -inf", "lr=-inf"},
      {"lr = nan", "lr=nan"},
      // Booleans: only for flags without a value.
      {"dry-run = true", "dry-run=true"},
      {"dry-run = false", ""},
      {"resume = true", "resume="},
      {"resume = false", ""},
      {"resume = 'run/step-3'", "resume=run/step-3"},
      // Arrays, and one value for a list.
      {"data = \"a.txt\"", "data=a.txt"},
      {"data = ['a', \"b\"]", "data=a|b"},
      {"data = [\n  \"a.txt\",  # one, and ] in a comment\n\n  'b#.txt'\n  , ]",
       "data=a.txt|b#.txt"},
      {"data = [1, 0x10, 'x']", "data=1|16|x"},
      {"data = ['[a]', 'b,c', \"\"\"d\ne\"\"\"]", "data=[a]|b,c|d\ne"},
  };
  for (const Row& row : rows) {
    try {
      EXPECT_EQ(read_as_one_line(row.text), row.expected) << row.text;
    } catch (const ConfigError& error) {
      ADD_FAILURE() << row.text << "\n" << error.what();
    }
  }
}

TEST(ConfigText, RefusalsNameThePlaceAndWhatIsAllowed) {
  const Row rows[] = {
      // What is not TOML 1.0.
      {"steps = ", "1:9: not TOML 1.0: "},
      {"steps", "1:6: not TOML 1.0: "},
      {"lr = 1\nsteps = 1 lr = 2", "2:11: not TOML 1.0: Error while parsing"},
      {"data = ['a' 'b']", "1:13: not TOML 1.0: "},
      {"data = ['a',, 'b']", "not TOML 1.0: "},
      {"data = ['a'", "not TOML 1.0: "},
      {"save = \"a\nb\"", "not TOML 1.0: "},
      {"save = \"C:\\dir\"", "escape sequence '\\d'"},
      {"save = \"\\uD800\"", "surrogates"},
      {"save = unquoted", "not TOML 1.0: "},
      {"save = 'a", "not TOML 1.0: "},
      {"steps = 007", "leading zero"},
      {"lr = 1.", "not TOML 1.0: "},
      {"lr = .5", "not TOML 1.0: "},
      {"seed = 1__0", "not TOML 1.0: "},
      {"seed = 9223372036854775808", "not representable in 64 bits"},
      {"lr = 1e400", "not TOML 1.0: "},
      {"steps = 1\nsteps = 2", "2:"},
      {"[Data]\nsteps = 1\n[Data]\nlr = 2", "cannot redefine existing table 'Data'"},
      {"model = 'm'\n[model]\nseed = 1", "begin its name with a capital letter"},
      {"learning-rate = 1", "unknown key 'learning-rate'; did you mean lr?"},
      {"optimizer = {lr = 1,}", "not TOML 1.0: "},
      {"[Data\nsteps = 1", "not TOML 1.0: "},
      {"steps = 1\rlr = 1", "not TOML 1.0: "},
      {"# \x01", "not TOML 1.0: "},
      {std::string("steps = 1\0", 10), "not TOML 1.0: "},
      {std::string("\0", 1), "not TOML 1.0: "},
      {"save = \"\xFF\"", "invalid utf-8"},
      {"save = \"\xC0\x80\"", "invalid utf-8"},
      {"\xEF\xBB\xB7 = 1", "not TOML 1.0: "},  // U+FEF7
      {"steps = 1 \xEF\xB8\x8F", "not TOML 1.0: "},
      {"\xC3\xA9 = 1", "not TOML 1.0: "},
      {"steps\xC2\xA0= 1", "not TOML 1.0: "},  // a no-break space
      {"[{", "not TOML 1.0: "},
      {"save = \"\xED\xA0\x80\"", "invalid utf-8"},
      {std::string("\xFF\xFEs\0t\0", 6), " the text is UTF-16, but TOML is UTF-8"},
      // Keys and tables.
      {"step = 3", "1:1: unknown key 'step'; did you mean steps?"},
      {"max_grad_norm = 3", "1:1: unknown key 'max_grad_norm'; did you mean max-grad-norm?"},
      {"steps = 1\nst\xC3\xA9ps = 1", "2: not TOML 1.0: letters that are not ASCII"},
      {"# \xC3\xA9\nsave = '\xC3\xA9' \xEF\xAC\xA6", "2: not TOML 1.0: letters"},
      {"  \"new\\nline\\u001b\" = 3", "1:3: unknown key 'new\\nline\\u001B'"},
      {"'' = 3", "1:1: unknown key ''"},
      {"h = true", "1:1: unknown key 'h'"},
      {"[Model]\n\nsteps = 1", "3:1: 'steps' is not in the group [Model]; did you mean [Data]?"},
      {"[train]\nsteps = 1",
       "unknown table [train]; tables are named like the groups of --help: Model, Data, Optimizer, "
       "Output"},
      {"[Outputs]", "1:2: unknown table [Outputs]; did you mean [Output]?; tables"},
      {"[General]\nhelp = true", "unknown table [General]"},
      {"[[Data]]\nsteps = 1", "'Data'"},
      {"[Data.more]\nsteps = 1", "unknown key 'more'"},
      {"steps = {most = 1}", "1:1: 'steps' is a flag, and its value is a table"},
      {"data = {data = {a = 1}}", "'data' is a table: allowed is a string, a number, or an array"},
      {"clip = 1\nmax-grad-norm = 1", "2:1: 'max-grad-norm' is given twice"},
      {"max-grad-norm = 1\n[optimizer]\nclip = 1",
       "3:1: 'clip' is given twice (max-grad-norm is the same flag)"},
      {"[Data]\nsteps = 1\n[data]\nsteps = 1", "4:1: 'steps' is given twice"},
      {"config = 'other.toml'", "1:1: --config is allowed only on the command line"},
      {"help = true", "1:1: --help is allowed only on the command line"},
      // Values.
      {"steps = [1]", "1:1: 'steps' is an array: allowed is one string or number"},
      {"steps = true", "1:1: 'steps' is true: allowed is one string or number"},
      {"save = 1979-05-27", "'save' is a date or a time: allowed is one string or number"},
      {"save = 07:32:00", "'save' is a date or a time"},
      {"save = 1979-05-27T07:32:00Z", "'save' is a date or a time"},
      {"dry-run = 1", "1:1: 'dry-run' is a number: allowed is true or false"},
      {"dry-run = \"true\"", "1:1: 'dry-run' is a string: allowed is true or false"},
      {"data = []", "1:1: 'data' is an empty array: allowed is at least one value"},
      {"data = ['a', ['b']]", "'data' is an array: allowed is an array of strings and numbers"},
      {"data = [true]", "'data' is true: allowed is an array of strings and numbers"},
      {"data = true", "'data' is true: allowed is a string, a number, or an array of them"},
      {"resume = ''", "1:1: 'resume' is empty: allowed is a path, or true"},
      {"resume = ['a']", "'resume' is an array: allowed is a string, a number, true or false"},
      {"save = \"a\\u0000b\"", "'save' contains the character U+0000"},
      {"data = ['a', \"\\u0000\"]", "'data' contains the character U+0000"},
  };
  for (const Row& row : rows) {
    const std::string error = error_of(row.text);
    EXPECT_SAYS(error, row.expected) << row.text << "\n";
    for (const char c : error) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << error;
  }
}

TEST(ConfigText, LongAndDeepTextIsRefusedInOneShortLine) {
  const auto repeated = [](const char* part, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += part;
    return text;
  };
  constexpr int kMany = 200'000;
  const std::string texts[] = {"data = " + repeated("[", kMany),
                               "data = " + repeated("[", kMany) + repeated("]", kMany),
                               repeated("a = {", kMany),
                               repeated("a.", kMany) + "a = 1",
                               "[" + repeated("a . ", kMany) + "a]",
                               "x = [\"\"\"a\"\"\"\", {" + repeated("a.", kMany) + "a = 1}]",
                               "x = ['''\n''''', {" + repeated("\"b=\".", kMany) + "a = 1}]",
                               repeated("a", kMany) + " = 1",
                               "save = \"" + repeated("\\u001b", kMany),
                               "[" + repeated("\xC3\xA9", kMany) + "]"};
  for (const std::string& text : texts) {
    const std::string error = error_of(text);
    EXPECT_FALSE(error.starts_with("no error")) << text.substr(0, 40);
    EXPECT_LT(error.size(), 500u);
    EXPECT_EQ(error.find('\n'), error.npos) << error;
  }
  EXPECT_EQ(error_of("\n\na.b.c.d.e.f.g.h.i = 1"), "3: a key has more than 8 parts");
  // Dots in strings, comments and lists are no parts of keys.
  const std::string list = repeated("'../a.b.txt', 1.5,\n", 1000);
  EXPECT_EQ(read("# " + repeated("a.", 1000) + "\ndata = [" + list + "]")[0].flag.values.size(),
            2000u);
}

TEST(ConfigText, ValuesHaveTheirPlace) {
  const auto values = read("\nsteps = 1\n[Data]\n  data = ['a',\n 'b']\n");
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(values[0].place, "--config run.toml:2:1");
  EXPECT_EQ(values[1].place, "--config run.toml:4:3");
  try {
    read_config_text("a\n\x1b.toml", "x", kFlags);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("--config a\\n\\u001B.toml:1:2: not TOML"));
  }
}

std::vector<std::string> awkward_texts() {
  // Some look like other values of TOML.
  std::istringstream words(
      "true false 1 -1 007 1. .5 1e5 1e-3 0.001 +1 -0 -0.0 1_000 0x10 inf nan 1e+22 1e400 3e-05 "
      "18446744073709551615 9223372036854775808 -9223372036854775808 100000000000000000000 [a] "
      "{a=1} a\"b'c \"\"\" ''' a\\ \\u00 # ~ 1979-05-27 07:32:00 \xEF\xBB\xBF \xEF\xBF\xBF");
  std::vector<std::string> texts;
  for (std::string word; words >> word;) texts.push_back(word);
  // Others have parts that need an escape, or seem to need one.
  const std::vector<std::string> parts = {"\"",
                                          "\\",
                                          "#",
                                          "'",
                                          "\n",
                                          "\r",
                                          "\t",
                                          "\b",
                                          "\f",
                                          "\x01",
                                          "\x1b",
                                          "\x7f",
                                          "=",
                                          "[",
                                          "]",
                                          ",",
                                          "u0041",
                                          "1",
                                          ".",
                                          " ",
                                          "\xC2\x85",
                                          "\xE2\x80\xA8",
                                          "\xF0\x9F\x98\x80"};
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (auto count = random() % 12; count > 0; --count) {
      text += parts[random() % parts.size()];
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

TEST(ConfigText, WhatACheckpointWritesIsReadBackEqual) {
  const std::vector<std::string> texts = awkward_texts();
  RunConfig config;
  for (const std::string& text : texts) {
    SCOPED_TRACE(text);
    const auto values = read(to_toml({{"save", {text}}, {"data", {text, "x", text}}}));
    ASSERT_EQ(values.size(), 2u);
    EXPECT_EQ(values[0].flag.values, std::vector{text});
    EXPECT_EQ(values[1].flag.values, (std::vector<std::string>{text, "x", text}));
  }
  EXPECT_EQ(read(to_toml({{"data", texts}})).at(0).flag.values, texts);
}

TEST(ConfigText, NumbersOfACheckpointStayNumbers) {
  std::mt19937_64 random(3);
  std::vector<std::string> texts = {"1", "0", "-5", "0.1", "1e-08", "3e-05", "1e+30"};
  for (int i = 0; i < 1000; ++i) {
    const double value =
        std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 300) - 200);
    texts.push_back(fmt::format("{}", value));
    texts.push_back(fmt::format("{}", static_cast<int64_t>(random())));
  }
  for (const std::string& text : texts) {
    EXPECT_EQ(toml_value(text), text);
    EXPECT_EQ(read("lr = " + text).at(0).flag.values, std::vector{text});
  }
}

}  // namespace
}  // namespace ebb::tests_of_config_text

// The command line of one sub-command, over CLI11: flags in groups, their texts handed to setters,
// --config.
//
// CLI11 stays in cli.cpp: it takes ten seconds to compile, wherever it is included.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/command_flags.h"

namespace CLI {
class App;
}

namespace ebb {

/// Flags are added by FlagGroup and parsed by parse_arguments().
class CommandLine {
 public:
  /// What --help says first: what the command does, and how it is called.
  CommandLine(const std::string& description, const std::string& name);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// What the arguments and --config gave, in the order in which flags were added.
  std::vector<FlagValue> given() const;
  /// By any of its long names, without dashes.
  bool was_given(const std::string& name) const;
  /// As if it had been among the arguments; false where there is no such flag. ConfigError where
  /// the value is not allowed.
  [[nodiscard]] bool give(const FlagValue& flag);

 private:
  friend struct FlagGroup;
  friend bool parse_arguments(CommandLine& line, std::vector<std::string> arguments, bool config);
  std::unique_ptr<CLI::App> app_;
};

/// Takes the flag as the user knows it and the text given; throws ConfigError where that is not
/// allowed.
using Setter = std::function<void(std::string_view flag, std::string_view text)>;

/// Adds flags to one group of --help.
struct FlagGroup {
  CommandLine& line;
  std::string name;

  /// `names` are separated by commas; `value` is the placeholder with the default in brackets.
  void add(const std::string& names, const std::string& value, const std::string& description,
           Setter setter);
  /// Its value may be left out: it is then empty.
  void add_optional(const std::string& names, const std::string& value,
                    const std::string& description, Setter setter);
  void add_list(const std::string& names, const std::string& value, const std::string& description,
                std::vector<std::string>& target);
  void add_flag(const std::string& names, const std::string& description,
                std::function<void()> setter);
};

/// Parses a sub-command's arguments and, where `config` is true, the file that --config names.
/// False where help was asked for and printed on stdout. Errors: ConfigError, IoError (the file).
/// Throws FlagsAsked where the flags themselves are what is asked for (command_flags.h).
[[nodiscard]] bool parse_arguments(CommandLine& line, std::vector<std::string> arguments,
                                   bool config);

/// Prints on standard error, where that can be done: nothing ends because it cannot.
void say(std::string_view text);

/// What was printed on standard output so far is there. std::system_error where it cannot be.
void flush_results();

}  // namespace ebb

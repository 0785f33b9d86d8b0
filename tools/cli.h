// The command line of one sub-command, with groups of flags and --config. Setters parse the values.
//
// Only cli.cpp includes CLI11, because CLI11 takes ten seconds to compile.
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
  /// --help starts with the description and the name of the command.
  CommandLine(const std::string& description, const std::string& name);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// Lets --help show only the flags of these long names (without dashes) and --config, and adds
  /// --help-all, which shows all flags. `note` follows the flags.
  void shorten_help(std::vector<std::string> most_used, const std::string& note);
  /// The flags from the arguments and --config, in the order in which the flags were added.
  std::vector<FlagValue> given() const;
  /// `name` is any long name of the flag, without dashes.
  bool was_given(const std::string& name) const;
  /// Sets a flag as if it were among the arguments. Returns false if there is no such flag; throws
  /// ConfigError if the value is not allowed.
  [[nodiscard]] bool give(const FlagValue& flag);

 private:
  friend struct FlagGroup;
  friend bool parse_arguments(CommandLine& line, std::vector<std::string> arguments, bool config);
  std::unique_ptr<CLI::App> app_;
  std::vector<std::string> most_used_;  ///< empty: --help shows all flags
};

/// Parses the text of a flag. Throws ConfigError, which names the flag, if the text is not allowed.
using Setter = std::function<void(std::string_view flag, std::string_view text)>;

/// Adds flags to one group of --help.
struct FlagGroup {
  CommandLine& line;
  std::string name;

  /// `names` are separated by commas; `value` is the placeholder with the default in brackets. In
  /// the value of a flag that takes a path (command_flags.h), ~/ becomes the home folder.
  void add(const std::string& names, const std::string& value, const std::string& description,
           Setter setter);
  /// A flag with an optional value; a missing value is empty.
  void add_optional(const std::string& names, const std::string& value,
                    const std::string& description, Setter setter);
  void add_list(const std::string& names, const std::string& value, const std::string& description,
                std::vector<std::string>& target);
  void add_flag(const std::string& names, const std::string& description,
                std::function<void()> setter);
};

/// Parses a sub-command's arguments and, if `config` is true, the file that --config names.
/// Returns false if --help was given; help is then on stdout. Errors: ConfigError, also for the
/// file. Throws FlagsAsked for kAskForFlags (command_flags.h).
[[nodiscard]] bool parse_arguments(CommandLine& line, std::vector<std::string> arguments,
                                   bool config);

/// Prints on standard error. Errors of the output are ignored.
void say(std::string_view text);

/// Flushes standard output. Throws std::system_error if the output cannot be written.
void flush_results();

}  // namespace ebb

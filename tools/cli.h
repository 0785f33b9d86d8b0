// The command line of one sub-command, over CLI11: flags in groups, their texts handed to setters,
// --config.
//
// Only for source files: CLI11 is a large header.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ebb {

/// Takes the flag as the user knows it and the text given; throws ConfigError where that is not
/// allowed.
using Setter = std::function<void(std::string_view flag, std::string_view text)>;

/// Adds flags to one group of --help.
struct FlagGroup {
  CLI::App& app;
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
[[nodiscard]] bool parse_arguments(CLI::App& app, std::vector<std::string> arguments, bool config);

}  // namespace ebb

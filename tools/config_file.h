// Reads the file of --config. The format is TOML 1.0. A key is a long name of a flag; it is at the
// top of the file or in a table that is named like the flag's group in --help, in upper or lower
// case.
//
//   steps = 100                 # numbers and strings; a list of values is an array
//   data = ["a.txt", "b.txt"]
//   [Output]                    # or [output]
//   save = "run"
//   save-weights-only = true    # a flag without a value
//
// Only config_file.cpp includes toml++, which takes seconds to compile. Pure functions, except
// read_config_file(). Errors: ConfigError; its message is one line, which for errors of the text
// has the file, the line and the column.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/command_flags.h"

namespace ebb {

struct ConfigValue {
  FlagValue flag;
  std::string place;  ///< "--config run.toml:3:1", for messages
};

/// The values of `text` in their order. `flags` are those of the command, with its groups; `path`
/// is only named in messages. Integers are converted to decimal; other numbers have the text of
/// the file, without "+" and "_". A flag without a value is "true", or absent if it is false.
/// Refused are: what is not TOML; unknown keys and tables; a flag that is given twice, by any of
/// its names; --help and --config; values of another type than the flag takes.
std::vector<ConfigValue> read_config_text(std::string_view path, std::string_view text,
                                          std::span<const Flag> flags);

/// The same for a regular file of at most 16 MiB. Errors of the file are ConfigErrors too.
std::vector<ConfigValue> read_config_file(const std::string& path, std::span<const Flag> flags);

/// The text, which must be UTF-8, as a TOML value from which read_config_text() makes the same
/// text: a number if it makes this text from a number, otherwise a string.
std::string toml_value(std::string_view text);

}  // namespace ebb

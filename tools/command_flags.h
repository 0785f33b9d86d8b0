// The flags of the sub-commands as data: what completions and the manual are made from. Whoever
// declares a flag for parsing (cli.h) has described it here, too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ebb {

struct Flag {
  enum class Takes : uint8_t { Nothing, Perhaps, One, Several };

  std::vector<std::string> names;  ///< "--seq-length", "--max-seq-length"; of a positional, "SHELL"
  std::string value;               ///< "fp32|bf16 [bf16]": what it takes, and its default
  std::string description;
  std::string group;
  Takes takes = Takes::Nothing;
  bool positional = false;
  std::vector<std::string> choices = {};  ///< that the value names: "fp32", "bf16"
  bool file = false;                      ///< a file or a folder is, or may be, its value
};

struct CommandFlags {
  std::string name;
  std::string summary;  ///< a line
  std::string description;
  std::vector<Flag> flags;  ///< in the order of --help
};

/// A flag as it was given, or as what was given came to: its first long name without dashes.
struct FlagValue {
  std::string name;
  std::vector<std::string> values;  ///< of a list, any number; of a switch, "true"
  bool resolved = false;            ///< not given
  bool operator==(const FlagValue&) const = default;
};

/// What a value's placeholder names: the words between bars that stand for themselves, and whether
/// it may be a file.
void read_value(Flag& flag);

/// Thrown by parse_arguments() where a command is asked for its flags alone.
struct FlagsAsked {
  CommandFlags command;
};
inline constexpr const char* kAskForFlags = "\x01 flags";  ///< the only argument then; no user's

}  // namespace ebb

// The flags of the sub-commands as data. Each flag is declared once, where it is parsed (cli.h);
// `ebb --flags-json` prints all of them, and the manual page and the shell completions are made
// from that (make_texts.py).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "device/errors.h"

namespace ebb {

struct Flag {
  enum class Takes : uint8_t { Nothing, Perhaps, One, Several };

  std::vector<std::string> names;  ///< "--seq-length", "--max-seq-length"
  std::string value;               ///< "fp32|bf16 [bf16]": the possible values and the default
  std::string description;
  std::string group;
  Takes takes = Takes::Nothing;
};

struct CommandFlags {
  std::string name;
  std::string summary;  ///< one line
  std::string description;
  std::vector<Flag> flags;  ///< in the order of --help
};

/// A flag and its values, given by the user or resolved from a default. The name is the first long
/// name, without dashes.
struct FlagValue {
  enum class Kind : uint8_t { Text, Path, Switch };

  std::string name;
  std::vector<std::string> values;  ///< of a list, any number; of a switch, "true"
  bool resolved = false;            ///< not given by the user
  Kind kind = Kind::Text;           ///< how a command line declares it; Text in files
  bool operator==(const FlagValue&) const = default;
};

/// Is the value of a flag a path, or may it be one? Its placeholder then has the word FILE, DIR or
/// PATH.
bool takes_path(std::string_view placeholder);

/// Is the flag, or another flag that cannot be given beside it, among the given flags?
bool gives_way(std::string_view name, const std::vector<FlagValue>& given);

/// A flag, or a key of --config, that the command does not have.
struct UnknownFlag : ConfigError {
  UnknownFlag(const std::string& message, std::string_view flag)
      : ConfigError(message), name(flag) {}
  std::string name;  ///< without dashes
};

/// parse_arguments() throws this when a command has only the argument kAskForFlags.
struct FlagsAsked {
  CommandFlags command;
};
inline constexpr const char* kAskForFlags = "\x01 flags";  ///< no user types this

}  // namespace ebb

// The flags of a run as a list: the flags that a checkpoint keeps, the flags that a resumed run
// reads from it, and the differences. Names are long flags without dashes, values are their texts.
//
// Pure functions, except give_flags(), which changes the command line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/command_flags.h"

namespace ebb {

class CommandLine;

struct TrainOptions;
struct TrainSetup;

using RunConfig = std::vector<FlagValue>;

/// Null if there is no flag of that name.
const FlagValue* find(const RunConfig& config, std::string_view name);

/// Whether a flag is part of the configuration of a run: not --help, --config, --resume, --dry-run.
bool is_setting(std::string_view name);

/// The flags that the user gave: on the command line, in --config, or in the run that made the
/// checkpoint. `taken` are the flags from the checkpoint; those whose value the program derived are
/// left out. Flags that affect only one invocation, such as --dry-run, are left out too.
RunConfig given_flags(const CommandLine& line, const RunConfig& taken = {});

/// Adds flags of `config` to the command line, and returns the added flags. A flag is not added if
/// it was given, if a given flag excludes it, or if its value was derived from a flag that was
/// given. Throws ConfigError if the flag is unknown or its value is not allowed.
RunConfig give_flags(CommandLine& line, const RunConfig& config);

/// Appends to an error message those of its flags that come from the checkpoint, with their values.
/// REQUIRES: the message names flags and no options of the library (option_flags.h).
std::string with_origin(std::string error, const RunConfig& taken);

/// Adds to `given` the resolved value of every flag on which results depend, and makes all paths
/// absolute. `setup` needs no plan. Throws ConfigError if the run saves checkpoints and a path is
/// not UTF-8.
RunConfig resolved_config(RunConfig given, const TrainOptions& options, const TrainSetup& setup);

/// The text in the format of --config.
std::string to_toml(const RunConfig& config);

/// One sentence for each flag that affects results and has changed.
std::vector<std::string> changes(const RunConfig& before, const RunConfig& now);

}  // namespace ebb

// The flags of a run as a list: the flags that a checkpoint keeps, the flags that a resumed run
// reads from it, and the differences. Names are long flags without dashes, values are their texts.
//
// Pure functions, except give_flags().
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

/// What the command line and --config gave, but for flags that are of one invocation alone, and
/// for those of `taken`, from a checkpoint, that nobody ever gave.
RunConfig given_flags(const CommandLine& line, const RunConfig& taken = {});

/// Takes from `config` the flags that were not given, nor others that exclude them, nor those from
/// which they only followed, and returns these. ConfigError where the line has no such flag, or the
/// value is not allowed.
RunConfig give_flags(CommandLine& line, const RunConfig& config);

/// Adds to an error which of its flags come from the checkpoint.
std::string with_origin(std::string error, const RunConfig& taken);

/// With every value on which results depend as it was resolved, whether given or not, and with
/// paths that hold anywhere. ConfigError where it is to be saved and a path is not UTF-8.
RunConfig resolved_config(RunConfig given, const TrainOptions& options, const TrainSetup& setup);

/// The text in the format of --config.
std::string to_toml(const RunConfig& config);

/// One sentence for each flag that affects results and has changed.
std::vector<std::string> changes(const RunConfig& before, const RunConfig& now);

}  // namespace ebb

// The sub-commands of `ebb`. Each takes its own arguments, without its name, and returns the exit
// code; results go to stdout, progress to stderr. Errors are thrown. run_command() converts
// them into one message and an exit code.
#pragma once

#include <string>
#include <vector>

#include "tools/command_flags.h"

namespace ebb {

inline constexpr int kExitFailed = 1;  ///< a failure while running
inline constexpr int kExitBadArguments =
    2;  ///< unknown flag, impossible combination, value out of range
inline constexpr int kExitDoesNotFit = 3;  ///< the plan does not fit

int train_command(std::vector<std::string> arguments);
int plan_command(std::vector<std::string> arguments);
int profile_command(std::vector<std::string> arguments);
int eval_command(std::vector<std::string> arguments);
int generate_command(std::vector<std::string> arguments);
int convert_command(std::vector<std::string> arguments);
int models_command(std::vector<std::string> arguments);
int devices_command(std::vector<std::string> arguments);

/// `arguments` without the program's name.
int run_command(std::vector<std::string> arguments);

}  // namespace ebb

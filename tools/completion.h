// Shell completion, as a script for each shell. Pure functions of the commands and their flags.
#pragma once

#include <span>
#include <string>

#include "tools/command_flags.h"

namespace ebb {

std::string bash_completion(std::span<const CommandFlags> commands);
std::string zsh_completion(std::span<const CommandFlags> commands);
std::string fish_completion(std::span<const CommandFlags> commands);

}  // namespace ebb

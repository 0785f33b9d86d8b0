// The description of all commands and flags that `ebb --flags-json` prints, for make_texts.py.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tools/command_flags.h"

namespace ebb {

/// {"version": ..., "commands": [{"name", "summary", "description", "flags": [...]}]}. A flag has
/// "names", "value", "description", "group", "takes" (nothing, perhaps, one or several values) and
/// "names_of_value" (the names of presets or machines, where these are values of the flag).
std::string flags_json(std::span<const CommandFlags> commands, std::string_view version);

}  // namespace ebb

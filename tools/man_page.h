// The manual, ebb(1), in the language of man. A pure function of the commands and their flags.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tools/command_flags.h"

namespace ebb {

std::string man_page(std::span<const CommandFlags> commands, std::string_view version);

}  // namespace ebb

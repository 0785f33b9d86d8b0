// Makes text from files and file names safe to print: control characters could change the title or
// the colours of a terminal, or look like lines of the program. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace ebb {

/// Replaces control characters and bytes that are not UTF-8 by "\n", "\t" or "\x1b".
std::string printable(std::string_view text);
/// The same, but newlines stay.
std::string printable_lines(std::string_view text);

}  // namespace ebb

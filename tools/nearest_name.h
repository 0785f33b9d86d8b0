// Suggests an existing name for a misspelled name. Pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ebb {

/// Returns the only one of `names` that begins with `name`, or else the one that needs the fewest
/// insertions, removals and replacements. Spaces and '_' count as '-', and capital letters as small
/// ones. If none is near, returns the only one that contains `name`, or else the only one that
/// insertions make from it, or else "".
std::string nearest_name(std::string_view name, std::span<const std::string> names);

}  // namespace ebb

// Suggests an existing name for a misspelled name. Pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ebb {

/// Returns the one of `names` that another program calls `name`, or else the only one that begins
/// with it, or else the one that needs the fewest insertions, removals and replacements, if these
/// are at most one and one more for every five letters (of equally near ones the first). If there
/// is none, returns the only one that contains `name`, or else, from five letters on, the only one
/// that insertions make from it, or else "". Spaces and '_' count as '-', and capital letters as
/// small ones. For a name of less than three letters only the fewest insertions, removals and
/// replacements count.
std::string nearest_name(std::string_view name, std::span<const std::string> names);

}  // namespace ebb

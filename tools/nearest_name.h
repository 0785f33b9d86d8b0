// Suggests an existing name for a misspelled name. Pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ebb {

/// Returns the first of these that exists, or "":
/// 1. the one of `names` that another program calls `name`;
/// 2. the only one that begins with `name`;
/// 3. the one that needs the fewest insertions, removals and replacements, if these are at most one
///    and one more for every five letters; of equally near ones the first;
/// 4. the only one that ends with `name`;
/// 5. the only one that contains `name`;
/// 6. from five letters on, the only one that insertions make from `name`.
/// Spaces and '_' count as '-', and capital letters as small ones. For a name of less than three
/// letters only 1 and 3 count.
std::string nearest_name(std::string_view name, std::span<const std::string> names);

/// "; did you mean NAME?", or "" for an empty name.
std::string did_you_mean(std::string_view name);

}  // namespace ebb

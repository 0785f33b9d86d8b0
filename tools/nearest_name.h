// Suggests an existing name for a misspelled name. Pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ebb {

/// The nearest of `names` by insertions, removals and replacements, where '_' counts as '-'; else
/// the only one that contains it; else "".
std::string nearest_name(std::string_view name, std::span<const std::string> names);

}  // namespace ebb

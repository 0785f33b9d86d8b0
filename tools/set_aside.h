// Room for a new file without losing the one that has its name.
//
// Errors: IoError.
#pragma once

#include <optional>
#include <string>

namespace ebb {

/// Renames a file that holds something to the first of PATH.1, PATH.2, ... that is free, and
/// returns that. nullopt where nothing would be lost: no file, an empty one, or no regular one.
std::optional<std::string> set_aside(const std::string& path);

}  // namespace ebb

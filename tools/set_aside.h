// Renames an existing file, so that a new file can have its name.
//
// Errors: IoError.
#pragma once

#include <optional>
#include <string>

namespace ebb {

/// Renames a file that holds something to the first of PATH.1, PATH.2, ... that is free, and
/// returns that. nullopt if nothing would be lost: no file, an empty file, or no regular file.
std::optional<std::string> set_aside(const std::string& path);

}  // namespace ebb

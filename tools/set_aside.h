// Renames an existing file, so that a new file can have its name.
//
// Errors: IoError.
#pragma once

#include <optional>
#include <string>

namespace ebb {

/// Renames a file that is not empty to the first free name of PATH.1, PATH.2, ..., and returns the
/// new name. PATH is the file itself, not a link to it. Returns nullopt if the path is no regular
/// file, or the file is empty or missing.
std::optional<std::string> set_aside(const std::string& path);
/// The notice about it.
std::string renamed_text(const std::string& path, const std::string& aside);

}  // namespace ebb

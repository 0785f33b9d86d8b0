// Suggests an existing path for a misspelled one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ebb {

/// Which entries of a folder are suggested.
enum class Among : uint8_t { All, Folders };

/// Returns the path of the entry in the folder of `path` whose name is nearest to the name of
/// `path` (nearest_name()), or "" if none is near or the folder cannot be read.
std::string nearest_path(const std::filesystem::path& path, Among among);

}  // namespace ebb

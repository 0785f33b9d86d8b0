// Small files of numbers that are measured once and kept in a folder.
#pragma once

#include <filesystem>
#include <string>

namespace ebb {

/// The file in `folder` for numbers that depend on `key`. The name contains only a hash of the key,
/// so the content must contain the key itself.
std::filesystem::path kept_file(const std::filesystem::path& folder, const std::string& kind,
                                const std::string& key);
/// Empty if there is no regular file that can be read.
std::string read_kept(const std::filesystem::path& file);
/// Writes the file completely or not at all. False if the file cannot be written.
bool write_kept(const std::filesystem::path& file, const std::string& text);

}  // namespace ebb

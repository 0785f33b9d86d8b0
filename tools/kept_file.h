// Small files of numbers that are measured once and kept in a folder.
#pragma once

#include <filesystem>
#include <string>

namespace ebb {

/// The file under `folder` for numbers that depend on what `key` says; the key itself belongs into
/// it, as the name holds but a hash of it.
std::filesystem::path kept_file(const std::filesystem::path& folder, const std::string& kind,
                                const std::string& key);
/// Empty where there is none.
std::string read_kept(const std::filesystem::path& file);
/// Whole or not at all. False where the folder takes no file.
bool write_kept(const std::filesystem::path& file, const std::string& text);

}  // namespace ebb

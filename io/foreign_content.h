// Recognises what a file contains, or a path names, in place of the expected content: Git LFS
// pointers, error pages, other formats and broken links. The results are parts of messages.
// Thread-safe; no state.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace ebb {

/// Pointers of Git LFS and git-xet have at most this many bytes.
inline constexpr size_t kLargestPointer = 1024;

/// Throws FormatError that names the size of the real file if the file is a pointer of Git LFS
/// (https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md) or of git-xet. An editor may have
/// put a byte order mark before the text.
void refuse_pointer(const std::string& path, std::span<const std::byte> file);

/// Says what a file with these bytes is: "a web page or XML, often the error message of a
/// download". Empty if the bytes are not recognised. REQUIRES: the file is not of the expected
/// format, because valid files may have the same first bytes.
std::string foreign_content(std::span<const std::byte> file);

/// Throws ConfigError that names the target if the path is a link to something that does not exist.
void refuse_broken_link(const std::string& path);

}  // namespace ebb

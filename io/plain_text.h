// Decides which files of a folder are text. Pure functions.
#pragma once

#include <cstddef>
#include <span>

namespace ebb {

/// Give is_text() this many bytes from the beginning of a file, or the whole file if it is smaller.
inline constexpr size_t kLookedAtBytes = size_t{64} << 10;

/// The number of bytes of the first character that are present; 0 if the text does not begin with a
/// UTF-8 character. REQUIRES: the text is not empty.
size_t character_bytes(std::span<const std::byte> text);

/// Whether the beginning of a file is text: it has no NUL byte, and at most a tenth of its bytes
/// are not UTF-8. So a few letters in an older encoding are allowed. A character that is incomplete
/// at the end counts as complete.
bool is_text(std::span<const std::byte> beginning);

}  // namespace ebb

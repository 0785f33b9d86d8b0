// Decides which files of a folder are text. A pure function.
#pragma once

#include <cstddef>
#include <span>

namespace ebb {

/// Give is_text() this many bytes from the beginning of a file, or the whole file if it is smaller.
inline constexpr size_t kLookedAtBytes = size_t{64} << 10;

/// Whether the beginning of a file is text: it has no NUL byte, and at most a tenth of its bytes
/// are not UTF-8. So a few letters in an older encoding are allowed. A character that is incomplete
/// at the end counts as complete.
bool is_text(std::span<const std::byte> beginning);

}  // namespace ebb
